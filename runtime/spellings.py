"""Other words for settings: the aliases that are accepted, and names of other servers that are answered with advice."""

import difflib
from collections.abc import Iterable

ALIASES = {
    "max_batch_size": "max_num_seqs",  # TensorRT-LLM's names
    "max_num_tokens": "max_num_batched_tokens",
    "enforce_eager": "mix_prefill",  # to vLLM's users it means "no CUDA graphs", which it does not do here
}
OPPOSITES = {"enforce_eager"}  # aliases that say true where their setting says false

INSTEAD = {
    "swap_space": "vLLM's was in GiB; use host_cache_memory, for example 4GiB",
    "kv_offloading_size": "vLLM's is in GiB; use host_cache_memory, for example 4GiB",
    "max_num_partial_prefills": "use max_prefill_seqs",
    "max_long_partial_prefills": "use long_prefill_token_threshold",
    "scheduler_delay_factor": "use max_waiting_time_s",
    "num_scheduler_steps": "each step is planned by itself; leave it out",
    "async_scheduling": "use overlap",
    "num_lookahead_slots": "there is no speculative decoding; leave it out",
    "scheduling_policy": "use policy or classes",
    "enable_chunked_prefill": "prefill is always chunked; leave it out",
    "enable_prefix_caching": "prefixes are always cached; leave it out",
    "gpu_memory_utilization": "use free_gpu_memory_fraction, or kv_cache_memory, for example 4GiB",
    "num_gpu_blocks_override": "use num_device_blocks",
    "kserve": "use kserve_dialect in section gateway",
    "max_num_queued_reqs": "use max_queued_requests of a class",
    "max_num_queued_tokens": "use max_queued_tokens of a class",
}


def said_as(spelling: str, text: str) -> str:
    """What the setting itself would have to say; a text that is neither true nor false stays, for the error message."""
    opposite = {"true": "false", "false": "true"} if spelling in OPPOSITES else {}
    return opposite.get(text.lower(), text)


def instead(word: str, known: Iterable[str]) -> str:
    """What to use instead of an unknown word, as the rest of an error message; nothing where nothing is close."""
    if (advice := INSTEAD.get(word.lstrip("-").replace("-", "_"))) is not None:
        return f": {advice}"
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
