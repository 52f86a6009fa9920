"""Whether an engine's tokens depend on nothing but the prompt, and how long it takes for them."""

from collections.abc import Iterator, Sequence
from statistics import median

from jetway.runtime.executor.base import Engine
from jetway.runtime.executor.counts import blocks_of
from jetway.scheduler.plan import EngineDescription, TokenLogprobs

from .findings import NotHere
from .generation import Generated, Generation

NUM_TOKENS = 8  # that each prompt is asked for
# Between the log-probabilities of a token and of the next best: what is closer, another batch may decide otherwise.
CLEAR = 0.1
BATCH_SIZES = (1, 4, 16, 64, 256)
NUM_TIMED_STEPS = 10


def describe(engine: Engine) -> Iterator[str]:
    it = engine.describe()
    yield f"{it.kind}, at most {it.max_num_seqs} sequences, {it.max_num_batched_tokens} tokens a step, {it.max_seq_len} long"
    size = f"{it.block_bytes} bytes, {it.block_size} tokens"
    yield f"{it.num_device_blocks} blocks on the device and {it.num_host_blocks} on the host, each {size}"


def tokens_alone_and_together(engine: Engine) -> Iterator[str]:
    """Each prompt by itself, then all in a batch. Raises AssertionError for a token that is another."""
    lengths = _lengths(engine.describe())
    alone = [_alone(engine, length, seed) for seed, length in enumerate(lengths)]
    together = Generation(engine)
    first = 0
    for slot, sequence in enumerate(alone):
        blocks = together.blocks(len(sequence.prompt) + NUM_TOKENS, first)
        first = blocks[-1] + 1
        together.start(slot, sequence.prompt, blocks)
    for _ in range(NUM_TOKENS - 1):
        together.decode(together.sequences)
    yield _compared([together.sequences[slot] for slot in range(len(alone))], alone)


def swap_round_trip(engine: Engine) -> Iterator[str]:
    """Displaced by another sequence after half of its tokens, and resumed in other blocks."""
    it = engine.describe()
    length = max(_lengths(it))
    num_blocks = blocks_of(length + NUM_TOKENS, it.block_size)
    _require_pools(it, 2 * num_blocks, num_blocks)
    expected = _alone(engine, length, seed=5)
    session = Generation(engine)
    session.start(0, expected.prompt, range(num_blocks))
    for _ in range(NUM_TOKENS // 2):
        session.decode([0])
    host = range(num_blocks)[::-1]
    session.displace(0, host, 1, session.prompt(length, seed=6))
    session.resume(0, host, range(num_blocks, 2 * num_blocks))
    while len(session.sequences[0].tokens) < NUM_TOKENS:
        session.decode([0, 1])
    yield _compared([session.sequences[0]], [expected])


def copy_rates(engine: Engine) -> Iterator[str]:
    """Of a long sequence's blocks, as far as a step has to wait for them."""
    it = engine.describe()
    length = min(it.max_seq_len, it.max_num_batched_tokens) - NUM_TOKENS
    num_blocks = min(blocks_of(length + NUM_TOKENS, it.block_size), it.num_host_blocks, it.num_device_blocks // 2)
    length = min(length, num_blocks * it.block_size - NUM_TOKENS)
    _require_pools(it, 2, 1)
    session = Generation(engine)
    session.start(0, session.prompt(length, seed=1), range(num_blocks))
    out = session.displace(0, range(num_blocks), 1, session.prompt(length, seed=2))
    back = session.resume(0, range(num_blocks), range(num_blocks, 2 * num_blocks))
    for way, result in (("to", out), ("from", back)):
        rate = num_blocks * it.block_bytes / max(result.copied_s, 1e-9)
        yield f"{num_blocks} blocks {way} the host: {result.copied_s * 1e3:.2f} ms, {rate / 1e9:.2f} GB/s"


def step_times(engine: Engine) -> Iterator[str]:
    """Of prompts, and of decodes by batch size."""
    it = engine.describe()
    session = Generation(engine)
    length = min(512, it.max_num_batched_tokens, it.max_seq_len - NUM_TOKENS, it.num_device_blocks * it.block_size)
    prefill = session.start(0, session.prompt(length, seed=0), session.blocks(length, 0))
    yield f"a prompt of {length} tokens: {prefill.elapsed_s * 1e3:.2f} ms"
    short = max(1, min(it.block_size, it.max_seq_len - NUM_TIMED_STEPS - 1))
    blocks_each = blocks_of(short + NUM_TIMED_STEPS + 1, it.block_size)
    for size in BATCH_SIZES:
        if size <= min(it.max_num_seqs, it.num_device_blocks // blocks_each):
            yield f"{size} decodes: {_decode_s(engine, size, short, blocks_each) * 1e3:.2f} ms"


def _decode_s(engine: Engine, size: int, length: int, blocks_each: int) -> float:
    """The median step that decodes so many sequences."""
    session = Generation(engine)
    for slot in range(size):
        blocks = range(slot * blocks_each, (slot + 1) * blocks_each)
        session.start(slot, session.prompt(length, seed=slot), blocks)
    return median(session.decode(range(size)).elapsed_s for _ in range(NUM_TIMED_STEPS))


def _lengths(it: EngineDescription) -> list[int]:
    """Prompts on both sides of a block's end, and one of a few blocks, as far as engine and pool allow."""
    most = min(it.max_seq_len - NUM_TOKENS, it.max_num_batched_tokens, it.num_device_blocks * it.block_size // 8)
    wanted = [1, it.block_size - 1, it.block_size, 2 * it.block_size + it.block_size // 2]
    return [max(1, min(length, most)) for length in wanted][: it.max_num_seqs]


def _alone(engine: Engine, length: int, seed: int) -> Generated:
    session = Generation(engine)
    session.start(0, session.prompt(length, seed), session.blocks(length + NUM_TOKENS, 0))
    while len(session.sequences[0].tokens) < NUM_TOKENS:
        session.decode([0])
    return session.sequences[0]


def _compared(found: Sequence[Generated], expected: Sequence[Generated]) -> str:
    """How near they are. Raises AssertionError where a clear token is another."""
    num_tokens, largest = 0, 0.0
    for one, other in zip(found, expected, strict=True):
        for token, wanted, scores, wanted_scores in zip(
            one.tokens, other.tokens, one.logprobs, other.logprobs, strict=True
        ):
            if token != wanted:
                assert not _is_clear(wanted_scores), f"token {token} instead of {wanted}, which is clear"
                break  # what follows has another past
            num_tokens += 1
            largest = max(largest, abs(scores.logprob - wanted_scores.logprob))
    return f"{num_tokens} tokens are equal, their log-probabilities within {largest:.1e}"


def _is_clear(scores: TokenLogprobs) -> bool:
    return scores.top_logprobs[0] - scores.top_logprobs[1] >= CLEAR


def _require_pools(it: EngineDescription, num_device_blocks: int, num_host_blocks: int) -> None:
    if it.num_device_blocks < num_device_blocks or it.num_host_blocks < num_host_blocks:
        raise NotHere(f"the pools hold {it.num_device_blocks} and {it.num_host_blocks} blocks, too few")
