"""The Engine protocol: what the executor needs of a device, and nothing else.

An engine knows packed arrays and pools of blocks. It does not know sequences, slots or plans: `steps.py` turns a
StepPlan into a StepBatch. It samples itself, since logits live where they were computed; engines that hand logits to
the host share `sampling.py`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from jetway.scheduler.plan import EngineDescription, TokenLogprobs
from jetway.scheduler.request import SamplingParams

Int32Array = NDArray[np.int32]
Int64Array = NDArray[np.int64]


@dataclass(slots=True)
class SamplingState:
    """One resident sequence as the sampler sees it. `tokens` grows in place as tokens are sampled."""

    sequence_index: int
    content_hash: int  # 64-bit, of prompt, index and (unless greedy) seed: keys the simulated engine's tokens
    params: SamplingParams
    stop_ids: frozenset[int]  # stop_token_ids and, unless ignore_eos, the model's end tokens
    tokens: list[int]  # every known token
    prompt_len: int  # tokens[prompt_len:] were generated
    ended: bool = False  # no more of it is computed


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBatch:
    """One step's compute for B rows and T packed tokens.

    Up to `sample_tokens` the arrays are the CPU engine's inputs as they stand (contracts/openvino.md, "The step
    contract"). Slots, starts and pending rows are for an engine on a device: it tells prompts from what was sampled, and
    may feed a sampled token before the host has seen it.
    """

    input_ids: Int64Array  # [T]
    position_ids: Int64Array  # [T]
    past_lens: Int32Array  # [B] tokens of each row already in the pool
    subsequence_begins: Int32Array  # [B + 1] prefix sums of tokens per row
    block_indices: Int32Array  # [sum of blocks] the block tables, concatenated
    block_indices_begins: Int32Array  # [B + 1]
    max_context_len: int  # max over rows of past + new
    sample_tokens: Int64Array  # [S] packed token numbers whose logits are wanted, in row order
    sample_states: Sequence[SamplingState]  # [S]
    row_slots: Int64Array  # [B] the slot of each row
    start_lens: Int32Array  # [B] tokens each row's sequence was started with; what lies beyond was sampled in its slot
    # [P] rows that compute one token, the last that was sampled in their slot; only the device has it, input_ids 0
    pending_rows: Int64Array = field(default_factory=lambda: np.empty(0, np.int64))


@dataclass(frozen=True, slots=True)
class Sampled:
    """What a step sampled, one entry a wanted row, in order. A failed row's token is meaningless."""

    tokens: Sequence[int]  # [S]
    logprobs: dict[int, TokenLogprobs]  # by row number, for rows that asked
    failures: dict[int, str]  # by row number: why this row has no token (for example NaN logits)
    copy_wait_s: float = 0.0  # of the step, its wait for copies that an engine makes beside its steps


class Launch(Protocol):
    """A step that an engine has been given."""

    def wait(self) -> Sampled:
        """What it sampled, once that is known. Called once, in the order of the launches.

        Raises EngineFailed when the step as a whole cannot be computed; the pools' other blocks are then unchanged.
        """
        ...


class Engine(Protocol):
    """A loaded engine with its two pools. Copies and launches come one at a time, and take effect in that order.

    A copy may be done later than its call, as long as nobody can tell. Waiting comes from a thread of its own.
    """

    @property
    def max_launches(self) -> int:
        """Steps that may be launched before the oldest is waited for; 1: a launch may take as long as its step."""
        ...

    @property
    def eos_token_ids(self) -> frozenset[int]: ...

    def describe(self) -> EngineDescription:
        """What is served; the pools it names are allocated."""
        ...

    def copy_out(self, device_blocks: Int32Array, host_blocks: Int32Array) -> None:
        """Copy device block i to host block i, whole blocks over all layers. Modifies the host pool."""
        ...

    def copy_in(self, host_blocks: Int32Array, device_blocks: Int32Array) -> None:
        """Copy host block i to device block i. Modifies the device pool."""
        ...

    def launch(self, batch: StepBatch) -> Launch:
        """Compute the batch, writing its KV into the device pool, and sample the wanted rows.

        The states of `pending_rows` lack the token that those rows compute: it is appended once the step before has been
        waited for, by whoever waits, also during this call. By then a row's sequence may turn out to have ended: nobody
        asks for what such a row samples. Raises as `wait` does.
        """
        ...


@dataclass(frozen=True, slots=True)
class Done:
    """A launch of which nothing is left to wait for."""

    sampled: Sampled

    def wait(self) -> Sampled:
        return self.sampled


class SynchronousEngine(ABC):
    """The launches of an engine that does one step at a time."""

    max_launches = 1

    def launch(self, batch: StepBatch) -> Launch:
        return Done(self.execute(batch))

    @abstractmethod
    def execute(self, batch: StepBatch) -> Sampled:
        """Do the step. Raises EngineFailed as `Launch.wait` does."""
