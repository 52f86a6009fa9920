"""A build, stage by stage: inspect, validate, convert, compile, manifest, verify. Only a verified engine appears."""

from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from . import checkpoint, gguf, manifest, model_config, offline, reuse
from .checkpoint import Checkpoint
from .manifest import Manifest, Tokens
from .model_config import ModelConfig
from .progress import Progress
from .spec import BuildSpec
from .staging import staged

PACKAGES = ("jetway-llm", "openvino", "torch", "transformers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What will be built, settled before anything slow starts."""

    spec: BuildSpec
    source: Checkpoint
    config: ModelConfig
    engine_id: str
    max_seq_len: int


def build(spec: BuildSpec, progress: Progress, *, force: bool) -> Manifest:
    """The engine in `spec.output_dir`: the one that stands there if it is of `spec` (unless `force`), else a new one.

    Raises BuildError; then, and when interrupted, nothing has changed. Runs on the main thread.
    """
    with progress.stage("inspect"):
        source = checkpoint.find(spec.model_dir)
        engine_id = reuse.engine_id(spec, source)
        progress.say(f"{source.metadata_file.name}, {_megabytes(source.weights)}")
        if not force and (existing := reuse.find(spec, engine_id)):
            progress.say("the engine is up to date")
            return existing
        reuse.check_free(spec.output_dir, force=force)
    with progress.stage("validate"):
        file = source.metadata_file
        config = model_config.parse(gguf.read_config(file) if source.gguf_file else checkpoint.read_json(file), file)
        max_seq_len = model_config.resolve_max_seq_len(config, spec.max_seq_len, file)
        progress.say(f"{config.architecture}, {config.num_hidden_layers} layers, up to {max_seq_len} tokens")
    target = Target(spec=spec, source=source, config=config, engine_id=engine_id, max_seq_len=max_seq_len)
    with staged(spec.output_dir) as directory:
        return _build_into(directory, target, progress)


def _build_into(directory: Path, target: Target, progress: Progress) -> Manifest:
    with progress.stage("convert"):
        offline.enforce()
        from . import huggingface, openvino, tokenizer, verify  # here, since they load torch and transformers

        hf_model = huggingface.load_model(target.source)
        progress.say("weights read as f32")
        converted = openvino.export(hf_model, target.config)
        progress.say("traced")
        openvino.save(converted, directory / manifest.OPENVINO_MODEL_FILE)
        progress.say(f"{_megabytes(tuple(directory.iterdir()))} written")
    with progress.stage("compile"):
        engine = openvino.compile_paged(directory / manifest.OPENVINO_MODEL_FILE)
        progress.say("paged attention in f32")
    with progress.stage("manifest"):
        hf_tokenizer = huggingface.load_tokenizer(target.source)
        tokenizer.check_fits(hf_tokenizer, target.config.vocab_size, target.source.metadata_file)
        tokenizer.write(hf_tokenizer, directory)
        tokens = tokenizer.special_tokens(hf_tokenizer, hf_model.generation_config)
        written = _describe(target, tokens, directory)
        manifest.write(written, directory)
        progress.say(f"engine {target.engine_id[:12]}")
    with progress.stage("verify"):
        prompt = hf_tokenizer.encode(verify.PROMPT)[: max(1, target.max_seq_len - verify.NEW_TOKENS)]
        agreement = verify.check(engine, hf_model, prompt)
        progress.say(f"{agreement.num_tokens} tokens as Hugging Face, logits within {agreement.max_difference:.0e}")
    return written


def _describe(target: Target, tokens: Tokens, directory: Path) -> Manifest:
    spec, config = target.spec, target.config
    return Manifest(
        engine=spec.engine,
        engine_id=target.engine_id,
        model_name=spec.output_dir.resolve().name,
        architecture=config.architecture,
        dtype=spec.dtype,
        kv_cache_dtype=spec.kv_cache_dtype,
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        num_hidden_layers=config.num_hidden_layers,
        num_attention_heads=config.num_attention_heads,
        num_key_value_heads=config.num_key_value_heads,
        head_size=config.head_size,
        max_position_embeddings=config.max_position_embeddings,
        tokens_per_block=spec.tokens_per_block,
        max_batch_size=spec.max_batch_size,
        max_num_tokens=spec.max_num_tokens,
        max_seq_len=target.max_seq_len,
        tokens=tokens,
        files={path.name: path.stat().st_size for path in sorted(directory.iterdir())},
        built_with={name: version(name) for name in PACKAGES},
    )


def _megabytes(files: tuple[Path, ...]) -> str:
    return f"{sum(file.stat().st_size for file in files) / 1e6:.1f} MB"
