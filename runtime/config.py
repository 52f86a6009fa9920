"""What `jetway serve` can be told: one frozen dataclass a component. Leaf names are unique, so each is also a flag."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorConfig:
    """The process that owns the device."""

    python: str | None = None  # interpreter of another environment; None: this one
    backend: str = "auto"  # "auto": what the engine directory holds; "simulated": no model, tokens from a hash
    kv_cache_memory: int = 1 << 30  # bytes of the device pool
    host_cache_memory: int = 0  # bytes of the host pool
    num_device_blocks: int | None = None  # instead of kv_cache_memory; for tests and experiments
    threads: int = 0  # compute threads; 0: all cores


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """Queues and batches. None: what the engine was built for."""

    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_queued_requests: int = 1024
    max_queued_tokens: int = 1 << 20
    preemption_mode: str = "recompute"  # or "off": a start reserves all blocks that it can ever need
    watermark: float = 0.01  # fraction of the device pool that a start leaves free


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    """The edge. Binds to loopback unless told otherwise."""

    host: str = "127.0.0.1"
    port: int = 8000  # OpenAI HTTP; 0: any free port
    grpc_port: int = 8001  # jetway.v1.Inference; 0: any free port
    max_request_bytes: int = 4 << 20
    stall_limit_s: float = 30.0  # a client that reads nothing for so long loses its own request


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeConfig:
    """Everything, as `--print-config` shows it."""

    engine: Path
    model_name: str | None = None  # None: the name in the engine directory
    log_level: str = "info"
    start_timeout_s: float = 300.0
    drain_timeout_s: float = 30.0
    executor: ExecutorConfig = field(default_factory=ExecutorConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    gateway: GatewayConfig = field(default_factory=GatewayConfig)
