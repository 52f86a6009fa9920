"""An executor for benchmarks of the scheduler alone: every row that samples gets the same token, at once."""

from pathlib import Path

from jetway.scheduler.plan import EngineDescription, Slot, StepPlan, StepResult

PEERS = Path(__file__).resolve().parent.parent.parent.parent / "shared" / "peers"
TOKEN = 7


class StubExecutor:
    """Keeps what it must know to tell which rows sample: tokens computed and known, by slot."""

    def __init__(self) -> None:
        self._counts: dict[Slot, tuple[int, int]] = {}

    def run(self, plan: StepPlan) -> StepResult:
        for start in plan.starts:
            self._counts[start.slot] = (start.computed, len(start.tokens))
        sampled = []
        for slot, num_tokens in zip(plan.row_slots, plan.row_tokens, strict=True):
            computed, known = self._counts[slot]
            computed += num_tokens
            if computed == known:
                sampled.append(slot)
                known += 1
            self._counts[slot] = (computed, known)
        count = len(sampled)
        return StepResult(step=plan.step, slots=sampled, tokens=[TOKEN] * count, stopped=[False] * count)


def describe(
    *, num_blocks: int, max_num_seqs: int, num_host_blocks: int = 0, block_size: int = 16, max_num_tokens: int = 8192
) -> EngineDescription:
    """An engine that does not exist; blocks of 16 tokens are vLLM's default."""
    return EngineDescription(
        engine_id="none",
        kind="none",
        version="0",
        block_size=block_size,
        num_device_blocks=num_blocks,
        num_host_blocks=num_host_blocks,
        block_bytes=1,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_tokens,
        max_seq_len=32_768,
        vocab_size=50_000,
    )
