"""Which of TensorRT-LLM's engines a step can drive, by the `config.json` beside them (contracts/tensorrt-llm.md, 2.6, 3)."""

from jetway.builder.fields import Fields

PLUGINS = "build_config.plugin_config"
LOGITS_DTYPES = ("float32", "float16")
KV_DTYPES = {"FP8": "fp8", "INT8": "int8"}  # by kv_cache_quant_algo
LARGEST_INT32 = 2**31 - 1
# What an engine must have, and why.
ON = {
    f"{PLUGINS}.remove_input_padding": "steps are packed, so it must be true",
    f"{PLUGINS}.use_paged_context_fmha": "without it a chunk of a prompt would not see those before it",
}
INSIDE = "the weights must be inside the engine"
# What it must not have; absent is as good as off.
OFF = {
    f"{PLUGINS}.manage_weights": INSIDE,
    "build_config.weight_streaming": INSIDE,
    "build_config.use_strip_plan": INSIDE,
    "build_config.use_refit": INSIDE,
    "build_config.gather_context_logits": "steps have one row of logits a sequence",
    "build_config.enable_debug_output": "steps have no output but logits",
    "build_config.max_draft_len": "steps have no drafts",
    "build_config.max_prompt_embedding_table_size": "steps have no prompt embeddings",
    "build_config.use_mrope": "steps have no positions in three dimensions",
    f"{PLUGINS}.lora_plugin": "steps have no LoRA weights",
    f"{PLUGINS}.streamingllm": "a cache with sink tokens excludes paged context",
    "pretrained_config.mapping.pp_partition": "stages have as many layers each, or one more",
    "jetway.sliding_windows": "a TensorRT engine's layers see all tokens",
}


def check(fields: Fields) -> None:
    """Raise ManifestError for an engine that no step can drive, or whose sizes contradict each other."""
    _check_options(fields)
    _check_split(fields)
    _check_cache(fields)
    _check_limits(fields)


def _check_options(fields: Fields) -> None:
    for name, why in ON.items():
        if not fields.flag(name):
            raise fields.error(name, False, why)
    for name, why in OFF.items():
        if value := fields.optional(name):
            raise fields.error(name, value, why)
    attention = f"{PLUGINS}.gpt_attention_plugin"
    if not (value := fields.value(attention)):
        raise fields.error(attention, value, "steps need this plugin")
    if (beams := fields.optional("build_config.max_beam_width")) not in (None, 1):
        raise fields.error("build_config.max_beam_width", beams, "steps have one beam")
    fields.choice("pretrained_config.logits_dtype", LOGITS_DTYPES)


def _check_split(fields: Fields) -> None:
    mapping = "pretrained_config.mapping"
    tp_size, pp_size = fields.integer(f"{mapping}.tp_size"), fields.integer(f"{mapping}.pp_size")
    if (parts := fields.optional(f"{mapping}.cp_size")) not in (None, 1):
        raise fields.error(f"{mapping}.cp_size", parts, "steps are not split by their tokens")
    if (world_size := fields.integer(f"{mapping}.world_size")) != tp_size * pp_size:
        why = f"tp_size {tp_size} and pp_size {pp_size} mean {tp_size * pp_size}"
        raise fields.error(f"{mapping}.world_size", world_size, why)
    layers = "pretrained_config.num_hidden_layers"
    if pp_size > (number := fields.integer(layers)):
        raise fields.error(f"{mapping}.pp_size", pp_size, f"{layers} is {number}")
    heads, kv_heads = "pretrained_config.num_attention_heads", "pretrained_config.num_key_value_heads"
    if (number := fields.integer(heads)) % tp_size:
        raise fields.error(heads, number, f"tp_size {tp_size} does not divide it")
    if (number := fields.integer(kv_heads)) % tp_size and tp_size % number:
        raise fields.error(kv_heads, number, f"it neither divides tp_size {tp_size} nor is divided by it")


def _check_cache(fields: Fields) -> None:
    kv_cache_type = fields.text("build_config.kv_cache_type")
    if kv_cache_type.lower() != "paged":  # versions differ in case
        raise fields.error("build_config.kv_cache_type", kv_cache_type, "steps need a paged cache")
    algorithm = "pretrained_config.quantization.kv_cache_quant_algo"
    built = fields.optional(algorithm)
    if built == "INT8":
        raise fields.error(algorithm, built, "it excludes paged context")
    stored = fields.text("pretrained_config.dtype") if built is None else KV_DTYPES.get(str(built))
    if (said := fields.text("jetway.kv_cache_dtype")) != stored:
        raise fields.error("jetway.kv_cache_dtype", said, f"{algorithm} {built} means {stored}")


def _check_limits(fields: Fields) -> None:
    tokens_per_block = fields.integer(f"{PLUGINS}.tokens_per_block")
    if not is_power_of_two(tokens_per_block):
        raise fields.error(f"{PLUGINS}.tokens_per_block", tokens_per_block, "it must be a power of two")
    max_batch_size, max_seq_len = (
        fields.integer("build_config.max_batch_size"),
        fields.integer("build_config.max_seq_len"),
    )
    if not is_block_table_indexable(max_batch_size, -(-max_seq_len // tokens_per_block)):
        raise fields.error("build_config.max_batch_size", max_batch_size, "its block table exceeds 32 bits")
    least_tokens = max_batch_size + tokens_per_block
    if (max_num_tokens := fields.integer("build_config.max_num_tokens")) < least_tokens:
        why = f"max_batch_size decodes and one block of prefill need {least_tokens}"
        raise fields.error("build_config.max_num_tokens", max_num_tokens, why)
    positions = fields.integer("pretrained_config.max_position_embeddings")
    if max_seq_len > positions:
        raise fields.error("build_config.max_seq_len", max_seq_len, f"its RoPE table has {positions} rows")


def is_block_table_indexable(max_batch_size: int, max_blocks_per_seq: int) -> bool:
    """Whether an int32 reaches all keys of a step's table, [max_batch_size, 2, max_blocks_per_seq]."""
    return ((max_batch_size - 1) * 2 + 1) * max_blocks_per_seq <= LARGEST_INT32


def is_power_of_two(number: int) -> bool:
    return number & (number - 1) == 0
