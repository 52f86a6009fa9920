"""What a build would make, in words: sizes, and how much of a KV pool a sequence takes."""

from collections.abc import Iterator

from . import disk
from .plan import Plan

POOL_BYTES = 1 << 30  # what `jetway serve` allocates unless told otherwise
SHORTEST_TOKENS = 512  # the table's first length; each next one is four times as long


def describe(plan: Plan, pool_bytes: int) -> Iterator[str]:
    """The lines to print. `pool_bytes` is the device pool to fill with sequences."""
    spec, config = plan.spec, plan.config
    yield f"model     {config.architecture}, {plan.num_parameters / 1e6:.1f} M parameters, {plan.source.metadata_file}"
    yield f"engine    {spec.engine}, weights {spec.quantization or spec.dtype}, KV cache {spec.kv_cache_dtype}"
    yield f"steps     up to {spec.max_batch_size} sequences and {spec.max_num_tokens} tokens"
    yield f"lengths   up to {plan.max_seq_len} tokens"
    free = disk.free_bytes(spec.output_dir)
    yield f"disk      about {plan.engine_bytes / 1e6:.1f} MB of {free / 1e6:.1f} MB free at {spec.output_dir}"
    per_token = plan.block_bytes / spec.tokens_per_block
    yield f"KV cache  {per_token:,.0f} bytes a token, {plan.block_bytes:,} a block of {spec.tokens_per_block} tokens"
    num_blocks = pool_bytes // plan.block_bytes
    yield f"pool      {pool_bytes:,} bytes hold {num_blocks:,} blocks, {num_blocks * spec.tokens_per_block:,} tokens:"
    for length in _lengths(plan.max_seq_len):
        blocks_each = -(-length // spec.tokens_per_block)
        yield f"{num_blocks // blocks_each:>16,} sequences of {length:,} tokens"


def _lengths(longest: int) -> Iterator[int]:
    length = SHORTEST_TOKENS
    while length < longest:
        yield length
        length *= 4
    yield longest
