"""What a step and a sequence may hold, and who can never run."""

from collections.abc import Mapping
from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from .plan import EngineDescription
from .preemption import Reluctance
from .request import InvalidRequest, Request


class PreemptionMode(StrEnum):
    AUTO = "auto"  # swap or recompute, whichever restores the sequence sooner by the measured rates
    SWAP = "swap"  # a preempted sequence's KV goes to the host tier, as far as there is room, and comes back
    RECOMPUTE = "recompute"  # a preempted sequence computes its tokens again
    OFF = "off"  # nothing is preempted: a start reserves every block that the sequence can ever need


class LimitError(ValueError):
    """The limits contradict each other or the engine; says which, with the values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Names as the field has them (contracts/field.md section 2). Raises LimitError."""

    max_num_seqs: int
    max_num_batched_tokens: int
    preemption_mode: PreemptionMode = PreemptionMode.AUTO
    reluctance: Reluctance = field(default_factory=Reluctance)
    aged_slots: int | None = None  # most sequences in the aged lane; None: a sixteenth of max_num_seqs, at least 1
    watermark: float = 0.01  # fraction of the device pool that a start leaves free for those that run
    write_through: bool = False  # copy every full block to the host as it fills: preempting then costs a tail at most
    max_prefill_seqs: int | None = None  # sequences that prefill in one step
    long_prefill_token_threshold: int = 0  # most tokens of one prompt in a step that computes others too; 0: no bound
    max_waiting_time_s: float = 0.0  # hold a thin batch of first starts so long for company
    mix_prefill: bool = True  # False: a step prefills or decodes, never both
    num_micro_batches: int = 1  # of a pipeline: so many plans share the decodes, and a sequence is in every so many

    def __post_init__(self) -> None:
        if self.max_num_seqs < 1:
            raise LimitError(f"max_num_seqs must be at least 1, not {self.max_num_seqs}")
        if self.num_micro_batches < 1:
            raise LimitError(f"num_micro_batches must be at least 1, not {self.num_micro_batches}")
        if not 0.0 <= self.watermark < 1.0:
            raise LimitError(f"watermark must be in [0, 1), not {self.watermark}")
        if self.max_prefill_seqs is not None and self.max_prefill_seqs < 1:
            raise LimitError(f"max_prefill_seqs must be at least 1, not {self.max_prefill_seqs}")
        for name in ("long_prefill_token_threshold", "max_waiting_time_s"):
            if not 0 <= getattr(self, name) < inf:
                raise LimitError(f"{name} must be at least 0 and finite, not {getattr(self, name)}")
        if self.aged_slots is not None and not 0 <= self.aged_slots <= self.max_num_seqs:
            raise LimitError(f"aged_slots must be in [0, max_num_seqs = {self.max_num_seqs}], not {self.aged_slots}")

    @property
    def num_aged_slots(self) -> int:
        return max(1, self.max_num_seqs // 16) if self.aged_slots is None else self.aged_slots

    def check_engine(self, engine: EngineDescription) -> None:
        """Raise LimitError unless the engine can do what the limits allow.

        One block of budget must remain beside a full batch of decodes, or a waiting prefill could starve.
        """
        for name in ("max_num_seqs", "max_num_batched_tokens"):
            if getattr(self, name) > getattr(engine, name):
                raise LimitError(
                    f"{name} is {getattr(self, name)}, but the engine was built for {getattr(engine, name)}"
                )
        least = self.max_num_seqs + engine.block_size
        if self.max_num_batched_tokens < least:
            raise LimitError(
                f"max_num_batched_tokens is {self.max_num_batched_tokens}; it must be at least {least}: "
                f"max_num_seqs ({self.max_num_seqs}) + the block size ({engine.block_size})"
            )
        if engine.num_device_blocks < 1:
            raise LimitError("the device pool holds no block; give the executor more kv_cache_memory")


def output_limit(request: Request, engine: EngineDescription) -> int:
    """Tokens that each sequence of the request may generate.

    An explicit max_tokens is honoured or refused; a default is as long as the sequence fits the engine and the pool
    alone. Raises InvalidRequest for what could never run, naming limit and value.
    """
    _check_ids("prompt", request.prompt, engine)
    _check_ids("stop_token_ids", request.sampling.stop_token_ids, engine)
    _check_ids("logit_bias", [token for token, _ in request.sampling.logit_bias], engine)
    return _length_limit(request, engine)


def check_generated(
    generated: Mapping[int, Items[int]], request: Request, engine: EngineDescription, max_output: int
) -> None:
    """Raise InvalidRequest unless the request's sequences can have generated these tokens, and can generate more."""
    if not generated or not all(0 <= index < request.n for index in generated):
        raise InvalidRequest("generated", f"generated must name some of {request.n} sequences")
    for tokens in generated.values():
        _check_ids("generated", tokens, engine)
        if len(tokens) >= max_output:
            raise InvalidRequest("generated", f"{len(tokens)} tokens are generated already, of at most {max_output}")


def _check_ids(param: str, tokens: Items[int], engine: EngineDescription) -> None:
    if tokens and (min(tokens) < 0 or max(tokens) >= engine.vocab_size):
        wrong = min(tokens) if min(tokens) < 0 else max(tokens)
        raise InvalidRequest(param, f"{param}: token id {wrong} is not in the vocabulary of {engine.vocab_size} tokens")


def longest_sequence(engine: EngineDescription) -> int:
    """Tokens of the longest sequence that the engine and the pool alone can hold."""
    return min(engine.max_seq_len, engine.num_device_blocks * engine.block_size)


def _length_limit(request: Request, engine: EngineDescription) -> int:
    prompt_len = len(request.prompt)
    longest = longest_sequence(engine)
    what = "the engine's max_seq_len" if longest == engine.max_seq_len else "the KV cache pool"
    if prompt_len >= longest:
        raise InvalidRequest(
            "prompt", f"the prompt has {prompt_len} tokens; {what} of {longest} tokens leaves no room to generate"
        )
    if request.max_tokens is None:
        return longest - prompt_len
    if prompt_len + request.max_tokens > longest:
        raise InvalidRequest(
            "max_tokens",
            f"prompt ({prompt_len} tokens) and max_tokens ({request.max_tokens}) exceed {what} of {longest} tokens",
        )
    return request.max_tokens
