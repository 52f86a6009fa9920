"""One step's contract: `StepPlan` goes to the executor, `StepResult` comes back. Pure data; arrays are parallel.

As if serial (DESIGN section 5): plans take effect in the order sent; inside one, the fields do in the order below.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NewType

from .request import SamplingParams, SequenceId

DeviceBlock = NewType("DeviceBlock", int)
HostBlock = NewType("HostBlock", int)
Slot = NewType("Slot", int)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineDescription:
    """What an executor serves, fixed for its life. Fields as in `jetway.v1.EngineDescription`."""

    engine_id: str
    kind: str
    version: str
    block_size: int  # tokens
    num_device_blocks: int
    num_host_blocks: int
    block_bytes: int  # over all layers
    max_num_seqs: int
    max_num_batched_tokens: int
    max_seq_len: int  # tokens, prompt and output together
    vocab_size: int
    capabilities: tuple[str, ...] = ()
    num_stages: int = 1  # of a pipeline: so many steps are under way at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A sequence becomes resident: first start, resume, recompute and recovery alike."""

    slot: Slot
    sequence_id: SequenceId
    tokens: Sequence[int]  # every known token: the prompt, then what was generated before
    prompt_len: int  # tokens[prompt_len:] were generated; penalties and min_tokens are rebuilt from them
    computed: int  # tokens whose KV already stands in `blocks`
    blocks: Sequence[DeviceBlock]  # token i lives in blocks[i // block_size]
    sampling: SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """What the executor does next, in this order."""

    step: int  # 1, 2, 3 ... within a session
    releases: Sequence[Slot] = ()  # forget these; their slots and blocks may be used again below
    copies_out: Sequence[tuple[DeviceBlock, HostBlock]] = ()  # copy device to host
    copies_in: Sequence[tuple[HostBlock, DeviceBlock]] = ()  # then host to device; the host block is free next plan
    starts: Sequence[Start] = ()  # make these resident
    grow_slots: Sequence[Slot] = ()  # append grow_blocks[i] to the block table of grow_slots[i]
    grow_blocks: Sequence[DeviceBlock] = ()
    row_slots: Sequence[Slot] = ()  # compute the next row_tokens[i] known tokens of row_slots[i] ...
    row_tokens: Sequence[int] = ()  # ... and sample exactly where that reaches the last known token


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Natural-log probabilities after penalties and bias, before temperature and truncation."""

    logprob: float  # of the sampled token
    top_tokens: Sequence[int] = ()  # best first
    top_logprobs: Sequence[float] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What one plan gave; sampled rows stand in the order of the plan's rows."""

    step: int
    slots: Sequence[Slot] = ()  # the rows that sampled
    tokens: Sequence[int] = ()
    stopped: Sequence[bool] = ()  # the token is an end or stop token: the executor computes no more of this sequence
    skipped: Sequence[Slot] = ()  # rows not computed because the executor had ended the sequence in an earlier step
    failures: Sequence[tuple[Slot, str]] = ()  # sequences that cannot be computed, and why; they are ended
    logprobs: dict[int, TokenLogprobs] = field(default_factory=dict)  # by position in `slots`, for rows that asked
    elapsed_s: float = 0.0  # from the plan's arrival at the engine to the end of sampling
    copied_out_s: float = 0.0  # of that, what the plan's block copies took
    copied_in_s: float = 0.0

    @property
    def copied_s(self) -> float:
        return self.copied_out_s + self.copied_in_s
