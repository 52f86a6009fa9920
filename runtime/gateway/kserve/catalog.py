"""The models that Triton's clients find here: one engine under the names that tensorrtllm_backend uses."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from jetway.runtime.errors import InvalidArgument, ModelNotFound
from jetway.runtime.gateway.text.vocabulary import Vocabulary
from jetway.runtime.gateway.words import cut

from .dialects.base import Dialect
from .dialects.llmapi import LlmapiDialect
from .dialects.text import TextDialect
from .dialects.tokens import TokensDialect

KserveDialect = Literal["inflight", "llmapi"]

VERSION = "1"  # the only one
TEXT_NAMES = ("ensemble", "tensorrt_llm_bls")
TOKENS_NAME = "tensorrt_llm"


@dataclass(frozen=True, slots=True)
class Model:
    name: str
    dialect: Dialect


class Catalog:
    """The served name and upstream's text names take text; `tensorrt_llm` speaks the dialect that is set."""

    def __init__(self, served_name: str, dialect: KserveDialect, vocabulary: Vocabulary) -> None:
        text = TextDialect()
        dialects: Mapping[str, Dialect] = {
            served_name: text,
            **dict.fromkeys(TEXT_NAMES, text),
            TOKENS_NAME: LlmapiDialect() if dialect == "llmapi" else TokensDialect(vocabulary),
        }
        self._models = {name: Model(name, each) for name, each in dialects.items()}

    def __iter__(self) -> Iterator[Model]:
        return iter(self._models.values())

    def find(self, name: str, version: str = "") -> Model:
        """Raises ModelNotFound, and InvalidArgument for a version that is no number; an empty one is the only one. Zeros
        may stand before it, as in Triton.
        """
        model = self._models.get(name)
        if model is None:
            raise ModelNotFound(f"Request for unknown model: '{cut(name)}' is not found", param="model_name")
        if version == "" or version.lstrip("0") == VERSION:
            return model
        if not (version.isascii() and version.isdigit()):
            raise InvalidArgument(
                f"failed to get model version from specified version string '{cut(version)}', version should be an "
                "integral value > 0",
                param="model_version",
            )
        raise ModelNotFound(
            f"Request for unknown model: '{name}' version {cut(version)} is not found", param="model_version"
        )
