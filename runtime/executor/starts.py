"""What the sampler knows of a sequence that starts: all of it comes with the start."""

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

from jetway.scheduler.plan import Start
from jetway.scheduler.request import SamplingParams

from .base import SamplingState


def sampling_state(start: Start, eos_token_ids: frozenset[int], vocab_size: int) -> SamplingState:
    params, index = start.sampling, start.sequence_id.index
    stop_ids = {*params.stop_token_ids, *(() if params.ignore_eos else eos_token_ids)}
    return SamplingState(
        sequence_index=index,
        content_hash=content_hash(start.tokens[: start.prompt_len], index, params),
        params=params,
        stop_ids=frozenset(token for token in stop_ids if token < vocab_size),
        tokens=list(start.tokens),
        prompt_len=start.prompt_len,
    )


def content_hash(prompt: Sequence[int], sequence_index: int, params: SamplingParams) -> int:
    """64 bits that name a sequence by what decides its tokens: prompt, index and, unless greedy, seed."""
    digest = blake2b(np.asarray(prompt, np.int64).tobytes(), digest_size=8)
    key = [sequence_index] if params.greedy else [sequence_index, params.seed]
    digest.update(np.array(key, np.uint64).tobytes())
    return int.from_bytes(digest.digest(), "little")
