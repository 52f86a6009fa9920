"""The engine directory's `config.json`: written by the builder, read by the executor and the gateway.

This module is the one thing that `builder/` and `runtime/` share; it imports the standard library only.

The file keeps TensorRT-LLM's shape (contracts/tensorrt-llm.md section 2.6): `version`, `pretrained_config`,
`build_config`; what is ours stands under `jetway`.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

FORMAT = 1
CONFIG_FILE = "config.json"
TOKENIZER_FILE = "tokenizer.json"
CHAT_TEMPLATE_FILE = "chat_template.jinja"
OPENVINO_MODEL_FILE = "model.xml"

ENGINES = ("openvino", "tensorrt")
DTYPES = ("float32",)
KV_CACHE_BYTES = {"f32": 4}  # of one number, by kv_cache_dtype

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
JETWAY_FIELDS = ("engine", "engine_id", "model_name", "kv_cache_dtype", "tokens", "files", "built_with")


class ManifestError(ValueError):
    """The directory is not an engine that this version can serve; says file, field, value and remedy."""

    def __init__(self, path: Path, problem: str, remedy: str = "Build the engine with build-engine") -> None:
        super().__init__(f"{path}: {problem}. {remedy}.")


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
    dtype: str  # of the weights: "float32"
    kv_cache_dtype: str  # "f32"
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
    tokens: Tokens
    files: dict[str, int]  # every other file of the directory and its size
    built_with: dict[str, str]  # package versions

    @property
    def kv_bytes_per_token(self) -> int:
        numbers = 2 * self.num_hidden_layers * self.num_key_value_heads * self.head_size
        return numbers * KV_CACHE_BYTES[self.kv_cache_dtype]


def write(manifest: Manifest, directory: Path) -> None:
    """Write `config.json` into `directory`."""
    values = asdict(manifest)
    document = {
        "version": manifest.built_with["jetway-llm"],
        "pretrained_config": {name: values[name] for name in PRETRAINED_FIELDS},
        "build_config": {
            **{name: values[name] for name in BUILD_FIELDS},
            "kv_cache_type": "PAGED",
            "plugin_config": {"tokens_per_block": manifest.tokens_per_block},
        },
        "jetway": {"format": FORMAT, **{name: values[name] for name in JETWAY_FIELDS}},
    }
    (directory / CONFIG_FILE).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def read(directory: Path) -> Manifest:
    """The manifest of an engine directory whose files are all there, whole. Raises ManifestError."""
    fields = _Fields(directory / CONFIG_FILE)
    if (number := fields.integer("jetway.format")) != FORMAT:
        raise fields.error("jetway.format", number, f"this version reads {FORMAT}")
    manifest = Manifest(
        engine=fields.choice("jetway.engine", ENGINES),
        engine_id=fields.text("jetway.engine_id"),
        model_name=fields.text("jetway.model_name"),
        architecture=fields.text("pretrained_config.architecture"),
        dtype=fields.choice("pretrained_config.dtype", DTYPES),
        kv_cache_dtype=fields.choice("jetway.kv_cache_dtype", tuple(KV_CACHE_BYTES)),
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
        tokens=_read_tokens(fields),
        files=fields.table("jetway.files", int),
        built_with=fields.table("jetway.built_with", str),
    )
    _check_files(manifest.files, directory)
    return manifest


def _read_tokens(fields: "_Fields") -> Tokens:
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


class _Fields:
    """The values of `config.json` by dotted name, each checked to be of the type that is asked for."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._root: object = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ManifestError(path, "does not exist", "Pass a directory that build-engine wrote") from None
        except (OSError, ValueError) as error:
            raise ManifestError(path, f"is not readable JSON ({error})") from error

    def error(self, name: str, value: object, why: str) -> ManifestError:
        return ManifestError(self._path, f"{name} is {value!r}; {why}")

    def value(self, name: str) -> object:
        node = self._root
        for key in name.split("."):
            if not isinstance(node, dict) or key not in node:
                raise ManifestError(self._path, f"has no {name}")
            node = node[key]
        return node

    def integer(self, name: str) -> int:
        value = self.value(name)
        if type(value) is not int or value < 1:
            raise self.error(name, value, "it must be a positive integer")
        return value

    def text(self, name: str) -> str:
        value = self.value(name)
        if not isinstance(value, str) or not value:
            raise self.error(name, value, "it must be a text")
        return value

    def optional_text(self, name: str) -> str | None:
        return None if self.value(name) is None else self.text(name)

    def choice(self, name: str, known: tuple[str, ...]) -> str:
        value = self.text(name)
        if value not in known:
            raise self.error(name, value, f"this version knows {', '.join(known)}")
        return value

    def table(self, name: str, kind: type[T]) -> dict[str, T]:
        value = self.value(name)
        if not isinstance(value, dict) or not all(type(item) is kind for item in value.values()):
            raise self.error(name, value, f"it must map names to {kind.__name__}")
        return value
