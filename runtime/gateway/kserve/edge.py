"""What both protocols share: models, and how requests to them run."""

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jetway.runtime.errors import JetwayError, Unavailable
from jetway.runtime.gateway.access import Access
from jetway.runtime.gateway.generate import Generator

from . import describe
from .catalog import Catalog
from .describe import Json
from .inference import Inference

if TYPE_CHECKING:
    from .servicer import KserveService

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Edge:
    """Answers in JSON; each protocol writes it in its own way."""

    generator: Generator
    access: Access
    catalog: Catalog
    inference: Inference

    def is_ready(self) -> bool:
        """Whether a call can start now, and is computed."""
        try:
            self.generator.check_ready()
        except Unavailable:
            return False
        return True

    def is_model_ready(self, name: str, version: str) -> bool:
        try:
            self.catalog.find(name, version)
        except JetwayError:
            return False
        return self.is_ready()

    def config(self, name: str, version: str) -> Json:
        return describe.config(self.catalog.find(name, version), self.access.placer.levels)

    def statistics(self, name: str, version: str) -> list[Json]:
        """Of one model; of all where the name is empty."""
        models = [self.catalog.find(name, version)] if name else self.catalog
        return [self.inference.statistics.of(model) for model in models]

    def index(self, *, only_ready: bool) -> list[Json]:
        ready = self.is_ready()
        return [] if only_ready and not ready else describe.index(list(self.catalog), ready=ready)


def grpc_service(edge: Edge, stall_limit_s: float) -> "KserveService | None":
    """The gRPC half; None, which the log explains, without tritonclient's protobuf types. Their import takes 0.3 s."""
    try:
        import tritonclient.grpc  # noqa: F401
    except (ImportError, RuntimeError) as error:  # it raises RuntimeError where a part of it is missing
        log.info("KServe v2 is served over HTTP only: %s; for gRPC install jetway-llm[triton]", error)
        return None
    from .servicer import KserveService

    return KserveService(edge, stall_limit_s)
