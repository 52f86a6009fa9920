"""What is said of server and models, as the JSON of HTTP, from which the messages of gRPC are made too."""

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from jetway.scheduler.classes import STANDARD

from .catalog import VERSION, Model
from .signature import InputSpec, TensorSpec

# Not here: shared memory, trace, logging, classification, sequence.
EXTENSIONS = (
    "model_repository", "schedule_policy", "model_configuration", "binary_tensor_data", "parameters", "statistics",
    "generate",
)  # fmt: skip

Json = dict[str, Any]


def server() -> Json:
    return {"name": "jetway", "version": version("jetway-llm"), "extensions": list(EXTENSIONS)}


def metadata(model: Model) -> Json:
    dialect = model.dialect
    return {
        "name": model.name,
        "versions": [VERSION],
        "platform": "jetway",
        "inputs": [_metadata(spec, batched=dialect.batched) for spec in dialect.inputs],
        "outputs": [_metadata(spec, batched=dialect.batched) for spec in dialect.outputs],
    }


def config(model: Model, levels: Mapping[str, int]) -> Json:
    """`levels` are those of the service classes: Triton's priority levels."""
    dialect = model.dialect
    return {
        "name": model.name,
        "platform": "",
        "backend": "jetway",
        "version_policy": {"latest": {"num_versions": 1}},
        "max_batch_size": 1 if dialect.batched else 0,
        "input": [_config(spec) | {"optional": not spec.required} for spec in dialect.inputs],
        "output": [_config(spec) for spec in dialect.outputs],
        "dynamic_batching": {
            "priority_levels": max(levels.values()),
            "default_priority_level": levels[STANDARD],
            "default_queue_policy": {"allow_timeout_override": True},
        },
        "model_transaction_policy": {"decoupled": True},
    }


def index(models: Sequence[Model], *, ready: bool) -> list[Json]:
    """The model repository."""
    state = "READY" if ready else "UNAVAILABLE"
    return [{"name": model.name, "version": VERSION, "state": state} for model in models]


def _metadata(spec: TensorSpec, *, batched: bool) -> Json:
    return {"name": spec.name, "datatype": spec.datatype, "shape": [*([-1] if batched else []), *spec.dims]}


def _config(spec: TensorSpec | InputSpec) -> Json:
    data_type = "TYPE_STRING" if spec.datatype == "BYTES" else f"TYPE_{spec.datatype}"
    return {"name": spec.name, "data_type": data_type, "dims": list(spec.dims)}
