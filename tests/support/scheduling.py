"""Builders for the pure scheduler, and a reference executor that reads plans by the contract alone."""

import random
from collections import Counter, deque
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from jetway.scheduler.classes import ServiceClass
from jetway.scheduler.events import Event, FinishReason, SequenceFinished, TokenSampled
from jetway.scheduler.limits import Limits, PreemptionMode
from jetway.scheduler.plan import DeviceBlock, EngineDescription, HostBlock, Slot, StepPlan, StepResult
from jetway.scheduler.request import Request, SamplingParams, SequenceId
from jetway.scheduler.scheduler import Scheduler
from jetway.scheduler.sequence import Sequence

BLOCK_SIZE = 4
VOCAB_SIZE = 1000


def make_engine(
    *, num_blocks: int = 100, num_host_blocks: int = 0, max_num_seqs: int = 8, max_seq_len: int = 400
) -> EngineDescription:
    return EngineDescription(
        engine_id="test",
        kind="reference",
        version="0",
        block_size=BLOCK_SIZE,
        num_device_blocks=num_blocks,
        num_host_blocks=num_host_blocks,
        block_bytes=1,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=1024,
        max_seq_len=max_seq_len,
        vocab_size=VOCAB_SIZE,
    )


def make_scheduler(
    *,
    num_blocks: int = 100,
    num_host_blocks: int = 0,
    classes: Items[ServiceClass] = (ServiceClass(),),
    tenant_weights: Mapping[str, float] | None = None,
    **limits: Any,
) -> Scheduler:
    """A scheduler of blocks of 4 tokens. `limits` are fields of Limits; small ones unless given."""
    limits = {
        "max_num_seqs": 8,
        "max_num_batched_tokens": 64,
        "preemption_mode": PreemptionMode.RECOMPUTE,
        "watermark": 0.0,
        **limits,
    }
    engine = make_engine(num_blocks=num_blocks, num_host_blocks=num_host_blocks, max_num_seqs=limits["max_num_seqs"])
    return Scheduler(Limits(**limits), classes, engine, tenant_weights=tenant_weights)


def make_request(
    id: str,
    *,
    prompt_len: int = 4,
    max_tokens: int | None = 4,
    prefix: str = "",
    prefix_len: int = 0,
    **fields: Any,
) -> Request:
    """A greedy request whose prompt is its own, but for the first `prefix_len` tokens, which `prefix` names.

    `fields` are those of Request.
    """
    prompt = [*_tokens_of(prefix, prefix_len), *_tokens_of(id, prompt_len)][:prompt_len]
    return Request(id=id, prompt=prompt, sampling=SamplingParams(temperature=0.0), max_tokens=max_tokens, **fields)


def make_sequence(id: str, *, order: int = 0, service_class: ServiceClass | None = None, **request: Any) -> Sequence:
    """A sequence of a request made from `request`'s fields, WAITING."""
    return Sequence(
        request=make_request(id, **request),
        id=SequenceId(id, 0),
        order=order,
        arrival=0.0,
        max_output=4,
        service_class=service_class or ServiceClass(),
    )


def _tokens_of(name: str, count: int) -> list[int]:
    rng = random.Random(name)
    return [rng.randrange(VOCAB_SIZE) for _ in range(count)]


def expected_tokens(request: Request, index: int = 0) -> list[int]:
    """What the reference executor generates for a request that nothing stops, computed from the request alone."""
    assert request.max_tokens is not None
    tokens = list(request.prompt)
    for _ in range(request.max_tokens):
        tokens.append(next_token(tokens, index))
    return tokens[len(request.prompt) :]


def next_token(tokens: list[int], index: int) -> int:
    """The reference model: a hash of every token before. A wrong context gives a wrong token."""
    digest = blake2b(repr((index, tokens)).encode(), digest_size=4).digest()
    return int.from_bytes(digest) % VOCAB_SIZE


@dataclass
class _Resident:
    sequence_id: SequenceId
    tokens: list[int]
    computed: int
    blocks: list[DeviceBlock]
    ended: bool = False


@dataclass
class ReferenceExecutor:
    """Follows executor.proto as if serial. Its pool holds, for each block position, the token computed there.

    A row reads its context back through the block table, so a wrong table, a block reused too early or a chunk in the
    wrong place gives wrong tokens or an AssertionError. `stops` says which tokens end a sequence.
    """

    num_blocks: int = 100
    stops: Callable[[int], bool] = lambda token: False
    fails: frozenset[str] = frozenset()  # request ids that cannot be computed
    pool: dict[tuple[DeviceBlock, int], int] = field(default_factory=dict)
    host: dict[tuple[HostBlock, int], int] = field(default_factory=dict)
    residents: dict[Slot, _Resident] = field(default_factory=dict)
    shared: set[DeviceBlock] = field(default_factory=set)  # in more than one table

    def run(self, plan: StepPlan) -> StepResult:
        for slot in plan.releases:
            del self.residents[slot]
        assert len({host for _, host in plan.copies_out}) == len(plan.copies_out), "a host block is copied to twice"
        assert len({device for _, device in plan.copies_in}) == len(plan.copies_in), "a device block is copied to twice"
        for device, host in plan.copies_out:
            self.host |= {(host, i): self.pool[device, i] for i in range(BLOCK_SIZE) if (device, i) in self.pool}
        for host, device in plan.copies_in:
            self.pool |= {(device, i): self.host[host, i] for i in range(BLOCK_SIZE) if (host, i) in self.host}
        for start in plan.starts:
            assert start.slot not in self.residents, f"slot {start.slot} is taken"
            tokens, blocks = list(start.tokens), list(start.blocks)
            self.residents[start.slot] = _Resident(start.sequence_id, tokens, start.computed, blocks)
        for slot, block in zip(plan.grow_slots, plan.grow_blocks, strict=True):
            self.residents[slot].blocks.append(block)
        held = [block for resident in self.residents.values() for block in resident.blocks]
        assert all(0 <= block < self.num_blocks for block in held)
        self.shared = {block for block, count in Counter(held).items() if count > 1}
        return self._compute(plan)

    def _compute(self, plan: StepPlan) -> StepResult:
        assert len(set(plan.row_slots)) == len(plan.row_slots), "a slot in two rows"
        slots, tokens, stopped, skipped, failures = [], [], [], [], []
        for slot, count in zip(plan.row_slots, plan.row_tokens, strict=True):
            resident = self.residents[slot]
            if resident.ended:
                skipped.append(slot)
                continue
            self._write(resident, count)
            if resident.sequence_id.request_id in self.fails:
                resident.ended = True
                failures.append((slot, "it cannot be computed"))
            elif resident.computed == len(resident.tokens):
                token = next_token(self._read(resident), resident.sequence_id.index)
                resident.tokens.append(token)
                resident.ended = self.stops(token)
                slots.append(slot)
                tokens.append(token)
                stopped.append(resident.ended)
        return StepResult(
            step=plan.step, slots=slots, tokens=tokens, stopped=stopped, skipped=skipped, failures=failures
        )

    def _write(self, resident: _Resident, count: int) -> None:
        assert count >= 1, "an empty row"
        end = resident.computed + count
        assert end <= len(resident.tokens), f"{resident} has no {count} tokens to compute"
        assert end == len(resident.tokens) or end % BLOCK_SIZE == 0, "a chunk that is not whole blocks"
        for position in range(resident.computed, end):
            assert resident.blocks[position // BLOCK_SIZE] not in self.shared, "a shared block is written"
            self.pool[resident.blocks[position // BLOCK_SIZE], position % BLOCK_SIZE] = resident.tokens[position]
        resident.computed = end

    def _read(self, resident: _Resident) -> list[int]:
        return [
            self.pool[resident.blocks[position // BLOCK_SIZE], position % BLOCK_SIZE]
            for position in range(resident.computed)
        ]


@dataclass
class Driver:
    """Steps a scheduler and the reference executor, and remembers what was said. `depth` plans may be in flight."""

    scheduler: Scheduler
    executor: ReferenceExecutor = field(default_factory=ReferenceExecutor)
    depth: int = 0
    now: float = 0.0  # the clock; a step takes no time of its own
    plans: list[StepPlan] = field(default_factory=list)
    log: list[Event] = field(default_factory=list)
    _results: deque[StepResult] = field(default_factory=deque)

    def step(self) -> StepPlan | None:
        """Plan once, then commit the oldest result when more than `depth` plans are in flight or nothing was planned."""
        plan = self.scheduler.plan(self.now)
        if plan is not None:
            self.plans.append(plan)
            self._results.append(self.executor.run(plan))
        if self._results and (plan is None or len(self._results) > self.depth):
            self.scheduler.commit(self._results.popleft(), self.now)
        self.log += self.scheduler.events()
        self.scheduler.check()
        return plan

    def lose_executor(self, executor: ReferenceExecutor) -> None:
        self._results.clear()
        self.executor = executor
        self.scheduler.executor_lost(self.now)

    def run(self, *, max_steps: int = 10_000) -> None:
        """Step until nothing is left to do."""
        for _ in range(max_steps):
            was_idle = not self._results
            if self.step() is None and was_idle:
                return
        raise AssertionError(f"still busy after {max_steps} steps: {self.scheduler.stats(0.0)}")

    def starts(self) -> list[str]:
        """The requests that started, in order, restarts included."""
        return [start.sequence_id.request_id for plan in self.plans for start in plan.starts]

    def running(self) -> set[str]:
        """The requests that hold a slot."""
        return {resident.sequence_id.request_id for resident in self.executor.residents.values()}

    def tokens(self, request_id: str, index: int = 0) -> list[int]:
        wanted = SequenceId(request_id, index)
        return [event.token for event in self.log if isinstance(event, TokenSampled) and event.sequence_id == wanted]

    def finishes(self) -> dict[str, tuple[FinishReason, int]]:
        """Every sequence that ended: why, and with how many output tokens."""
        return {
            str(event.sequence_id): (event.reason, event.num_tokens)
            for event in self.log
            if isinstance(event, SequenceFinished)
        }
