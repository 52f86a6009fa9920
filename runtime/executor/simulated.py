"""An engine without a model: tokens from a hash, time from a formula, KV that shows where blocks went wrong."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from jetway.scheduler.plan import EngineDescription, TokenLogprobs

from .base import Int32Array, Sampled, SamplingState, StepBatch, SynchronousEngine
from .kv_tags import KvTags
from .noise import GAMMA, Uint64Array, mix64


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimeModel:
    """How long a step takes; a row that computes one token is a decode. All zero: no time passes."""

    step_s: float = 0.0
    prefill_token_s: float = 0.0
    decode_seq_s: float = 0.0
    kv_token_s: float = 0.0  # per token that attention reads, past and new

    def duration_s(self, batch: StepBatch) -> float:
        counts = np.diff(batch.subsequence_begins)
        prefill_tokens, decode_seqs = counts[counts > 1].sum(), (counts == 1).sum()
        kv_tokens = batch.past_lens.sum() + counts.sum()
        return float(
            self.step_s
            + self.prefill_token_s * prefill_tokens
            + self.decode_seq_s * decode_seqs
            + self.kv_token_s * kv_tokens
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedBehaviour:
    """What a simulated engine does beyond giving tokens."""

    step_time: StepTimeModel = field(default_factory=StepTimeModel)
    eos_probability: float = 0.0  # per token, drawn from the token's own hash
    fail_on: int | None = None  # a sequence with this token in its prompt fails
    verify_kv: bool = True  # costs time in proportion to all resident tokens of each step


PLAIN = SimulatedBehaviour()


class SimulatedEngine(SynchronousEngine):
    """An Engine whose tokens are a hash of (content hash, position), whatever the batch.

    It never gives an end token unless `eos_probability` says so, nor a stop token before `min_tokens`.
    """

    def __init__(
        self,
        description: EngineDescription,
        eos_token_ids: frozenset[int] = frozenset(),
        behaviour: SimulatedBehaviour = PLAIN,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._description = description
        self._eos_token_ids = eos_token_ids
        self._behaviour = behaviour
        self._sleep = sleep
        self._kv = KvTags(description.block_size, description.num_device_blocks, description.num_host_blocks)

    @property
    def eos_token_ids(self) -> frozenset[int]:
        return self._eos_token_ids

    def describe(self) -> EngineDescription:
        return self._description

    def copy_out(self, device_blocks: Int32Array, host_blocks: Int32Array) -> None:
        self._kv.pools.copy_out(device_blocks, host_blocks)

    def copy_in(self, host_blocks: Int32Array, device_blocks: Int32Array) -> None:
        self._kv.pools.copy_in(host_blocks, device_blocks)

    def execute(self, batch: StepBatch) -> Sampled:
        """Raises EngineFailed when a sampled row's blocks do not hold the KV of its tokens."""
        if duration_s := self._behaviour.step_time.duration_s(batch):
            self._sleep(duration_s)
        if self._behaviour.verify_kv:
            self._kv.write(batch)
            self._kv.verify(batch)
        states = batch.sample_states
        hashes = _token_hashes(states).tolist()
        tokens = [self._token(h, state) for h, state in zip(hashes, states, strict=True)]
        logprobs = {
            i: self._logprobs(tokens[i], state.params.logprobs)
            for i, state in enumerate(states)
            if state.params.logprobs is not None
        }
        return Sampled(tokens, logprobs, self._failures(states))

    def _token(self, token_hash: int, state: SamplingState) -> int:
        """The hash's token, or the nearest above it (around the vocabulary) that may be sampled here."""
        vocab_size, eos = self._description.vocab_size, self._eos_token_ids
        early = len(state.tokens) - state.prompt_len < state.params.min_tokens
        ends = (token_hash >> 11) * 2.0**-53 < self._behaviour.eos_probability
        if ends and not early and eos & state.stop_ids:
            return min(eos)
        barred = eos | state.stop_ids if early else eos
        return next(t for i in range(vocab_size) if (t := (token_hash + i) % vocab_size) not in barred)

    def _logprobs(self, token: int, count: int) -> TokenLogprobs:
        """Probability 1/2 for the sampled token, 1/4 for the next id, and so on."""
        top_tokens = [(token + i) % self._description.vocab_size for i in range(count)]
        return TokenLogprobs(math.log(0.5), top_tokens, [math.log(0.5) * (i + 1) for i in range(count)])

    def _failures(self, states: Sequence[SamplingState]) -> dict[int, str]:
        poison = self._behaviour.fail_on
        if poison is None:
            return {}
        failing = (i for i, state in enumerate(states) if poison in state.tokens[: state.prompt_len])
        return dict.fromkeys(failing, f"the prompt holds token {poison}")


def _token_hashes(states: Sequence[SamplingState]) -> Uint64Array:
    content = np.array([state.content_hash for state in states], np.uint64)
    positions = np.array([len(state.tokens) for state in states], np.uint64)
    return mix64(content + positions * GAMMA)
