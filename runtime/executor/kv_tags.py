"""Stand-ins for KV: a tag a token, which depends on all tokens before it as real KV does; so wrong blocks show."""

import numpy as np

from jetway.runtime.errors import EngineFailed

from .base import Int32Array, Int64Array, StepBatch
from .noise import GAMMA, Uint64Array, mix64
from .pools import BlockPools


class KvTags:
    """Pools that hold 64 bits a token: the sum of the marks of a (token, position) pair over all tokens so far."""

    def __init__(self, block_size: int, num_device_blocks: int, num_host_blocks: int) -> None:
        self._block_size = block_size
        self.pools = BlockPools([(block_size,)], np.uint64, num_device_blocks, num_host_blocks)
        self._tags: Uint64Array = self.pools.device[0].reshape(-1)

    def write(self, batch: StepBatch) -> None:
        """Write the tags of the batch's tokens, each row's on top of the last past tag that its block table shows."""
        counts = np.diff(batch.subsequence_begins)
        rows = np.arange(len(counts))
        last = self._places(batch, rows, np.maximum(batch.past_lens, 1) - 1)
        past_tags = np.where(batch.past_lens > 0, self._tags[last], np.uint64(0))
        tags = _chain(_marks(batch.input_ids, batch.position_ids), counts) + np.repeat(past_tags, counts)
        self._tags[self._places(batch, np.repeat(rows, counts), batch.position_ids)] = tags

    def verify(self, batch: StepBatch) -> None:
        """Compare every tag of the sampled rows with its sequence's tokens; other rows are checked once they sample.

        Raises EngineFailed, naming the first wrong block.
        """
        states = batch.sample_states
        lengths = np.array([len(state.tokens) for state in states], np.int64)
        tokens = np.array([token for state in states for token in state.tokens], np.int64)
        positions = np.arange(len(tokens)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        rows = np.searchsorted(batch.subsequence_begins, batch.sample_tokens, side="right") - 1
        places = self._places(batch, np.repeat(rows, lengths), positions)
        wrong = np.flatnonzero(self._tags[places] != _chain(_marks(tokens, positions), lengths))
        if len(wrong):
            first = wrong[0]
            raise EngineFailed(
                f"device block {places[first] // self._block_size} does not hold the KV of position {positions[first]} "
                f"of row {np.repeat(rows, lengths)[first]}"
            )

    def _places(self, batch: StepBatch, rows: Int64Array, positions: Int64Array | Int32Array) -> Int64Array:
        """Where the block tables put these positions of these rows, counted in tokens over the whole pool."""
        blocks = batch.block_indices[batch.block_indices_begins[rows] + positions // self._block_size]
        places: Int64Array = blocks.astype(np.int64) * self._block_size + positions % self._block_size
        return places


def _marks(tokens: Int64Array, positions: Int64Array) -> Uint64Array:
    return mix64(mix64(positions.astype(np.uint64) + GAMMA) + tokens.astype(np.uint64))


def _chain(marks: Uint64Array, lengths: Int64Array | Int32Array) -> Uint64Array:
    """Running sums modulo 2^64, starting anew for each of the packed rows."""
    sums = np.cumsum(marks)
    begins = np.cumsum(lengths, dtype=np.int64) - lengths
    chained: Uint64Array = sums - np.repeat(sums[begins] - marks[begins], lengths)
    return chained
