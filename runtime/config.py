"""What `jetway serve` can be told: one frozen dataclass a component. Leaf names are unique, so each is also a flag.

`settings.py` reads these fields: their names, types, defaults, ranges and help texts are all that it knows.
"""

from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from .errors import ConfigError

_T = TypeVar("_T")
_DAY_S = 86_400.0


def setting(
    default: _T, help: str, *, low: float | None = None, high: float | None = None, unit: str | None = None
) -> _T:
    """A dataclass field with its help text and its range, ends included; with unit "bytes" it reads 512MiB too."""
    return field(default=default, metadata={"help": help, "low": low, "high": high, "unit": unit})


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorConfig:
    """The process that owns the device."""

    python: str | None = setting(None, "interpreter of another environment; null: this one")
    backend: Literal["auto", "simulated"] = setting("auto", "auto: what the engine holds; simulated: no model at all")
    kv_cache_memory: int = setting(1 << 30, "size of the device pool", low=1, unit="bytes")
    host_cache_memory: int = setting(0, "size of the host pool", low=0, unit="bytes")
    num_device_blocks: int | None = setting(None, "blocks of the device pool, instead of kv_cache_memory", low=1)
    threads: int = setting(0, "compute threads; 0: all cores", low=0)

    def __post_init__(self) -> None:
        check_values(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """Queues and batches."""

    max_num_seqs: int | None = setting(None, "most sequences in a step; null: what the engine allows", low=1)
    max_num_batched_tokens: int | None = setting(None, "most tokens in a step; null: what the engine allows", low=1)
    max_queued_requests: int = setting(1024, "requests that may wait; one more is refused", low=1)
    max_queued_tokens: int = setting(1 << 20, "prompt tokens that may wait; more are refused", low=1)
    preemption_mode: Literal["recompute", "off"] = setting(
        "recompute", "recompute: give a sequence's blocks away and compute them again; off: reserve all at the start"
    )
    watermark: float = setting(0.01, "fraction of the device pool that a start leaves free", low=0.0, high=0.5)

    def __post_init__(self) -> None:
        check_values(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    """The edge. Binds to loopback unless told otherwise."""

    host: str = setting("127.0.0.1", "address that both servers bind")
    port: int = setting(8000, "port of the OpenAI API; 0: any free port", low=0, high=65_535)
    grpc_port: int = setting(8001, "port of jetway.v1.Inference; 0: any free port", low=0, high=65_535)
    max_request_bytes: int = setting(4 << 20, "largest request body", low=1, high=64 << 20, unit="bytes")
    stall_limit_s: float = setting(
        30.0, "a client that reads nothing for so long loses its own request", low=0.01, high=_DAY_S
    )

    def __post_init__(self) -> None:
        check_values(self)
        if self.port and self.port == self.grpc_port:
            raise ConfigError(f"port and grpc_port must differ; both are {self.port}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeConfig:
    """Everything, as `--print-config` shows it."""

    engine: Path = field(metadata={"help": "engine directory, made by build-engine", "unit": None})
    model_name: str | None = setting(None, "name that clients use; null: the one in the engine directory")
    log_level: Literal["debug", "info", "warning", "error"] = setting("info", "least severe message that is logged")
    start_timeout_s: float = setting(300.0, "longest time from start to ready", low=0.01, high=_DAY_S)
    drain_timeout_s: float = setting(30.0, "longest time that open requests get at a stop", low=0.0, high=_DAY_S)
    executor: ExecutorConfig = field(default_factory=ExecutorConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    gateway: GatewayConfig = field(default_factory=GatewayConfig)

    def __post_init__(self) -> None:
        check_values(self)


ConfigSection = ServeConfig | ExecutorConfig | SchedulerConfig | GatewayConfig


def check_values(section: ConfigSection) -> None:
    """Raise ConfigError for a value outside its range or its choices."""
    hints = get_type_hints(type(section))
    for key in fields(section):
        check_value(key, hints[key.name], getattr(section, key.name))


def check_value(key: Field[Any], hint: object, value: object) -> None:
    """Raise ConfigError unless `value`, which has the type of `hint`, is in the field's range or choices."""
    if get_origin(hint) is Literal and value not in get_args(hint):
        raise ConfigError(f"{key.name} must be one of {', '.join(get_args(hint))}, not {value!r}")
    if isinstance(value, int | float):
        low, high = key.metadata["low"], key.metadata["high"]
        if low is not None and not value >= low:  # NaN fits no range
            raise ConfigError(f"{key.name} must be at least {low}, not {value}")
        if high is not None and not value <= high:
            raise ConfigError(f"{key.name} must be at most {high}, not {value}")
