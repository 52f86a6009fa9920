"""`jetway triton-repo`: a model repository whose models hand their requests to a Jetway gateway."""

import json
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path

from jetway.runtime.errors import Unavailable
from jetway.runtime.gateway.kserve.catalog import TEXT_NAMES, TOKENS_NAME, VERSION, KserveDialect
from jetway.runtime.gateway.kserve.dialects.llmapi import LlmapiDialect
from jetway.runtime.gateway.kserve.dialects.text import TextDialect
from jetway.runtime.gateway.kserve.dialects.tokens import TokensDialect
from jetway.runtime.gateway.kserve.signature import InputSpec, TensorSpec

MAX_REQUESTS = 256  # of one model
# Imported by Triton as a package, which is the version's directory.
PROGRAMS = ("model.py", "exchange.py", "over_http.py", "over_grpc.py")
Signature = type[TextDialect] | type[TokensDialect] | type[LlmapiDialect]


def write(directory: Path, url: str, dialect: KserveDialect) -> list[str]:
    """Make or renew the models in `directory`, under upstream's names, for the gateway at `url`. Returns the names.

    Raises Unavailable where it cannot be written.
    """
    signatures: dict[str, Signature] = {
        **dict.fromkeys(TEXT_NAMES, TextDialect),
        TOKENS_NAME: LlmapiDialect if dialect == "llmapi" else TokensDialect,
    }
    programs = {name: files(__package__).joinpath(name).read_text(encoding="utf-8") for name in PROGRAMS}
    try:
        for name, signature in signatures.items():
            version = directory / name / VERSION
            version.mkdir(parents=True, exist_ok=True)
            for program, text in programs.items():
                (version / program).write_text(text, encoding="utf-8")
            (version.parent / "config.pbtxt").write_text(configuration(name, signature, url), encoding="utf-8")
    except OSError as error:
        raise Unavailable(f"the model repository {directory} cannot be written: {error.strerror}") from error
    return list(signatures)


def configuration(name: str, signature: Signature, url: str) -> str:
    """A model's config.pbtxt."""
    return "\n".join(
        [
            f'name: "{name}"',
            'backend: "python"',
            f"max_batch_size: {1 if signature.batched else 0}",
            "model_transaction_policy { decoupled: true }",
            "instance_group [ { count: 1 kind: KIND_CPU } ]",
            *_tensors("input", signature.inputs),
            *_tensors("output", signature.outputs),
            _parameter("jetway_url", url),
            _parameter("max_requests", str(MAX_REQUESTS)),
            "",
        ]
    )


def _tensors(field: str, specs: Sequence[TensorSpec]) -> Iterator[str]:
    for spec in specs:
        data_type = "STRING" if spec.datatype == "BYTES" else spec.datatype
        dims = ", ".join(map(str, spec.dims))
        optional = " optional: true" if isinstance(spec, InputSpec) and not spec.required else ""
        yield f'{field} {{ name: "{spec.name}" data_type: TYPE_{data_type} dims: [ {dims} ]{optional} }}'


def _parameter(name: str, value: str) -> str:
    return f'parameters {{ key: "{name}" value {{ string_value: {json.dumps(value)} }} }}'
