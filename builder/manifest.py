"""The engine directory's `config.json`: written by the builder, read by the executor and the gateway.

This module is the one thing that `builder/` and `runtime/` share; it needs the standard library only.

The file keeps TensorRT-LLM's shape (contracts/tensorrt-llm.md section 2.6): `version`, `pretrained_config`,
`build_config`; what is ours stands under `jetway`. Beside TensorRT engines it is TensorRT-LLM's own file, with that
section added.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .fields import Fields
from .fields import ManifestError as ManifestError  # noqa: PLC0414  mypy takes no other word for an export
from .tensorrt.engine_config import TensorRtBuild as TensorRtBuild  # noqa: PLC0414
from .tensorrt.engine_config import engine_file as engine_file  # noqa: PLC0414
from .tensorrt.engine_config import read_build
from .tensorrt.engine_config import stage_layers as stage_layers  # noqa: PLC0414

FORMAT = 1
CONFIG_FILE = "config.json"
TOKENIZER_FILE = "tokenizer.json"
CHAT_TEMPLATE_FILE = "chat_template.jinja"
OPENVINO_MODEL_FILE = "model.xml"

ENGINES = ("openvino", "tensorrt")
DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
QUANTIZATIONS = ("int8", "int4", "fp8")
KV_BYTES = DTYPE_BYTES | {"fp8": 1, "int8": 1}  # of a number in a TensorRT engine's cache
KV_CACHE_DTYPES = ("f32", "u8", *KV_BYTES)

PRETRAINED_FIELDS = (
    "architecture",
    "dtype",
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_size",
    "max_position_embeddings",
)
BUILD_FIELDS = ("max_batch_size", "max_num_tokens", "max_seq_len")
JETWAY_FIELDS = (
    "engine",
    "engine_id",
    "model_name",
    "quantization",
    "kv_cache_dtype",
    "sliding_windows",
    "tokens",
    "files",
    "built_with",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Special tokens. Ids and their text; a tokenizer may have none of them."""

    eos_ids: tuple[int, ...]  # sampling one of these ends a sequence
    bos: str | None
    eos: str | None
    unk: str | None
    pad: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One engine directory. Sizes in bytes, lengths in tokens."""

    engine: str  # "openvino" or "tensorrt"
    engine_id: str  # hex SHA-256 over what the engine computes with; equal ids give equal tokens
    model_name: str  # the name it is served under unless told otherwise
    architecture: str  # as Hugging Face names it, for example "LlamaForCausalLM"
    dtype: str  # of the weights, unless quantized, and of the arithmetic
    quantization: str | None = None  # of the weights
    kv_cache_dtype: str
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_size: int
    max_position_embeddings: int
    tokens_per_block: int
    max_batch_size: int  # most sequences in one step
    max_num_tokens: int  # most tokens in one step
    max_seq_len: int
    sliding_windows: tuple[int | None, ...] = ()  # by layer: a token sees so many, itself included; (): all see all
    tokens: Tokens
    files: dict[str, int]  # every other file of the directory and its size
    built_with: dict[str, str]  # package versions
    tensorrt: TensorRtBuild | None = None  # of a TensorRT engine

    @property
    def block_bytes(self) -> int:
        """Bytes of one block's keys and values over all layers; of a group's ranks, on that which holds most."""
        if self.tensorrt is not None:
            num_layers = -(-self.num_hidden_layers // self.tensorrt.pp_size)
            num_heads = -(-self.num_key_value_heads // self.tensorrt.tp_size)
            each = 2 * self.tokens_per_block * self.head_size * KV_BYTES[self.kv_cache_dtype]
            return num_layers * num_heads * each
        num_heads = self.num_hidden_layers * self.num_key_value_heads
        return num_heads * kv_bytes_per_head(self.kv_cache_dtype, self.tokens_per_block, self.head_size)

    @property
    def kv_bytes_per_token(self) -> int:
        """Exact for every head size that is a multiple of 4."""
        return self.block_bytes // self.tokens_per_block


def kv_bytes_per_head(kv_cache_dtype: str, tokens_per_block: int, head_size: int) -> int:
    """Bytes of the keys and values of one block, one head and one layer, as OpenVINO lays them out on the CPU."""
    if kv_cache_dtype == "f32":
        return 2 * tokens_per_block * head_size * 4
    scale_and_zero_point = 8  # two f32: one pair a channel for keys, one pair a token for values
    keys = head_size * (tokens_per_block + scale_and_zero_point)
    values = tokens_per_block * (head_size + scale_and_zero_point)
    return keys + values


def write(manifest: Manifest, directory: Path) -> None:
    """Write `config.json` into `directory`, where TensorRT-LLM has written its own if the engine is one of its."""
    values = asdict(manifest)
    ours = {"format": FORMAT, **{name: values[name] for name in JETWAY_FIELDS}}
    path = directory / CONFIG_FILE
    if manifest.tensorrt is not None:
        document = json.loads(path.read_text(encoding="utf-8"))
        document["jetway"] = ours | {"compute_capability": manifest.tensorrt.compute_capability}
    else:
        document = _document(manifest, values) | {"jetway": ours}
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _document(manifest: Manifest, values: dict[str, Any]) -> dict[str, Any]:
    """What TensorRT-LLM would write of an engine that is not its own."""
    return {
        "version": manifest.built_with["jetway-llm"],
        "pretrained_config": {name: values[name] for name in PRETRAINED_FIELDS},
        "build_config": {
            **{name: values[name] for name in BUILD_FIELDS},
            "kv_cache_type": "PAGED",
            "plugin_config": {"tokens_per_block": manifest.tokens_per_block},
        },
    }


def read(directory: Path) -> Manifest:
    """The manifest of an engine directory whose files are all there, whole. Raises ManifestError."""
    fields = Fields(directory / CONFIG_FILE)
    if fields.optional("jetway.converted_by") is not None:
        problem = "is of a converted checkpoint, of which no engine is built yet"
        raise ManifestError(directory / CONFIG_FILE, problem, "Leave --convert-only out of build-engine")
    if (number := fields.integer("jetway.format")) != FORMAT:
        raise fields.error("jetway.format", number, f"this version reads {FORMAT}")
    engine = fields.choice("jetway.engine", ENGINES)
    manifest = Manifest(
        engine=engine,
        engine_id=fields.text("jetway.engine_id"),
        model_name=fields.text("jetway.model_name"),
        architecture=fields.text("pretrained_config.architecture"),
        dtype=fields.choice("pretrained_config.dtype", tuple(DTYPE_BYTES)),
        quantization=fields.optional_choice("jetway.quantization", QUANTIZATIONS),
        kv_cache_dtype=fields.choice("jetway.kv_cache_dtype", KV_CACHE_DTYPES),
        vocab_size=fields.integer("pretrained_config.vocab_size"),
        hidden_size=fields.integer("pretrained_config.hidden_size"),
        num_hidden_layers=fields.integer("pretrained_config.num_hidden_layers"),
        num_attention_heads=fields.integer("pretrained_config.num_attention_heads"),
        num_key_value_heads=fields.integer("pretrained_config.num_key_value_heads"),
        head_size=fields.integer("pretrained_config.head_size"),
        max_position_embeddings=fields.integer("pretrained_config.max_position_embeddings"),
        tokens_per_block=fields.integer("build_config.plugin_config.tokens_per_block"),
        max_batch_size=fields.integer("build_config.max_batch_size"),
        max_num_tokens=fields.integer("build_config.max_num_tokens"),
        max_seq_len=fields.integer("build_config.max_seq_len"),
        sliding_windows=_read_windows(fields),
        tokens=_read_tokens(fields),
        files=fields.table("jetway.files", int),
        built_with=fields.table("jetway.built_with", str),
        tensorrt=read_build(fields) if engine == "tensorrt" else None,
    )
    _check_files(manifest.files, directory)
    return manifest


def _read_tokens(fields: Fields) -> Tokens:
    eos_ids = fields.value("jetway.tokens.eos_ids")
    if not isinstance(eos_ids, list) or not all(type(token) is int and token >= 0 for token in eos_ids):
        raise fields.error("jetway.tokens.eos_ids", eos_ids, "it must be a list of token ids")
    return Tokens(
        eos_ids=tuple(eos_ids),
        bos=fields.optional_text("jetway.tokens.bos"),
        eos=fields.optional_text("jetway.tokens.eos"),
        unk=fields.optional_text("jetway.tokens.unk"),
        pad=fields.optional_text("jetway.tokens.pad"),
    )


def _read_windows(fields: Fields) -> tuple[int | None, ...]:
    windows = fields.optional("jetway.sliding_windows") or []
    layers = fields.integer("pretrained_config.num_hidden_layers")
    if not isinstance(windows, list) or not all(w is None or (type(w) is int and w >= 1) for w in windows):
        raise fields.error("jetway.sliding_windows", windows, "it must be a list of positive integers and null")
    if len(windows) not in (0, layers):
        raise fields.error("jetway.sliding_windows", windows, f"it must be empty or have {layers} entries")
    return tuple(windows)


def _check_files(files: dict[str, int], directory: Path) -> None:
    for name, size in files.items():
        path = directory / name
        if not path.is_file():
            raise ManifestError(path, f"does not exist, but {CONFIG_FILE} lists it", "Copy the whole directory again")
        found = path.stat().st_size
        if found != size:
            raise ManifestError(
                path, f"has {found} bytes, but {CONFIG_FILE} says {size}", "Copy the whole directory again"
            )
