"""What `jetway serve` can be told: one frozen dataclass a component.

Leaf names of the sections are unique, so each is also a flag; classes, tenants and keys have names that the user chooses, and
stand in a file only. `settings.py` reads these fields: their names, types, defaults, ranges and help texts are all that
it knows.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from jetway.scheduler.request import MAX_LOGIT_BIAS, MAX_LOGPROBS, MAX_SEQUENCES

from .contradictions import check_sections
from .fields import Contradiction, check_values, setting
from .named_config import ClassConfig, KeyConfig, TenantConfig

_DAY_S = 86_400.0
DEFAULT_POOL_BYTES = 1 << 30
MAX_STOP_STRINGS = 16  # of a call
MAX_STOP_CHARS = 1024  # of each


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorConfig:
    """The process that owns the device."""

    python: str | None = setting(None, "interpreter of another environment; null: this one")
    backend: Literal["auto", "simulated"] = setting("auto", "auto: what the engine holds; simulated: no model at all")
    simulated_step_s: float = setting(
        0.0,
        "time that a simulated step takes; while it is 0 recomputing is free, and preemption_mode auto never swaps",
        low=0.0,
        high=60.0,
    )
    kv_cache_memory: int | None = setting(
        None,
        "size of the device pool, on a CPU over all stages; null: 1GiB, and on a GPU what free_gpu_memory_fraction says",
        low=1,
        unit="bytes",
    )
    free_gpu_memory_fraction: float = setting(
        0.9,
        "how much of the GPU's memory that is free beside the engine becomes the device pool; sampling needs some too",
        low=0.01,
        high=1.0,
    )
    host_cache_memory: int = setting(
        1 << 30, "size of the host pool, where displaced sequences wait; 0: they compute again", low=0, unit="bytes"
    )
    num_device_blocks: int | None = setting(None, "blocks of the device pool, instead of kv_cache_memory", low=1)
    pp_size: int = setting(
        1,
        "stages of a pipeline, each a process with a slice of the layers (of the simulated engine: a thread); a TensorRT "
        "engine has those it was built for",
        low=1,
        high=8,
    )
    mpirun: str = setting(
        "mpirun",
        "command line that starts the ranks of an executor of several; its program is sought beside python first",
    )
    threads: int = setting(0, "compute threads of each rank; 0: all cores", low=0)

    def __post_init__(self) -> None:
        check_values(self)

    @property
    def main_memory_pool_bytes(self) -> int:
        """The size of a device pool that is in main memory."""
        return DEFAULT_POOL_BYTES if self.kv_cache_memory is None else self.kv_cache_memory


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """Batches, and who yields to whom."""

    max_num_seqs: int | None = setting(None, "most sequences in a step; null: what the engine allows", low=1)
    max_num_batched_tokens: int | None = setting(None, "most tokens in a step; null: what the engine allows", low=1)
    max_prefill_seqs: int | None = setting(None, "most sequences that prefill in one step; null: no bound", low=1)
    long_prefill_token_threshold: int = setting(
        0, "most tokens of one prompt in a step that computes others too; 0: no bound", low=0
    )
    max_waiting_time_s: float = setting(
        0.0, "longest time that a thin batch of first starts is held for company", low=0.0, high=_DAY_S
    )
    mix_prefill: bool = setting(
        True,
        "let a step prefill and decode; false, or enforce_eager: one or the other (to vLLM users enforce_eager means "
        "no CUDA graphs; here it does not)",
    )
    policy: Literal["strict", "weighted", "fcfs"] | None = setting(
        None, "shorthand for `classes`; null: strict, unless classes are given"
    )
    aged_slots: int | None = setting(
        None,
        "most sequences in the aged lane, at most max_num_seqs; nothing is kept free for it, but what runs there stands "
        "before every level; 0: no lane; null: a sixteenth of max_num_seqs, at least 1",
        low=0,
    )
    preemption_mode: Literal["auto", "swap", "recompute", "off"] = setting(
        "auto",
        "what becomes of a preempted sequence's KV: swap: it goes to the host pool and comes back; recompute: it is "
        "computed again; auto: whichever is sooner; off: nothing is preempted, a start reserves all it can ever need",
    )
    min_steps_between_preemptions: int = setting(
        32, "rather not preempt a sequence again within so many steps; a preference inside a level", low=0
    )
    max_preemptions: int = setting(
        8, "rather not preempt a sequence more often than this; a preference inside a level", low=0
    )
    overlap: Literal["auto", "0", "1", "2", "3", "4", "5", "6", "7", "8"] = setting(
        "auto",
        "plans in flight when another is sent; 1 hides the time between steps and makes a new arrival wait one step more; "
        "auto: 1 where that time is over half a percent of a step, and of a pipeline the number of stages, at most which "
        "may be given",
    )
    write_through: bool = setting(
        False, "copy each block to the host pool as it fills, so that a preemption copies a tail at most"
    )
    watermark: float = setting(0.01, "fraction of the device pool that a start leaves free", low=0.0, high=0.5)

    def __post_init__(self) -> None:
        check_values(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    """The edge. Binds to loopback unless told otherwise."""

    host: str = setting("127.0.0.1", "address that both servers bind")
    insecure: bool = setting(
        False, "serve whoever reaches a host that is not loopback, without keys and client certificates"
    )
    tls_certificate: str | None = setting(
        None, "PEM file of both servers' certificate chain, read by each gateway when it starts; null: no TLS"
    )
    tls_key: str | None = setting(None, "PEM file of its private key, without a passphrase")
    tls_client_ca: str | None = setting(
        None, "PEM file of who signs clients; with it both servers refuse clients without a certificate"
    )
    num_processes: int = setting(1, "gateways, which share both ports", low=1, high=256)
    port: int = setting(8000, "port of the OpenAI API and of KServe v2; 0: any free port", low=0, high=65_535)
    grpc_port: int = setting(8001, "port of jetway.v1.Inference and of KServe v2; 0: any free port", low=0, high=65_535)
    max_request_bytes: int = setting(4 << 20, "largest request body", low=1, high=16 << 20, unit="bytes")
    max_connections: int = setting(1024, "connections to each server; more are closed", low=1)
    max_open_requests: int = setting(4096, "calls that have not ended, of both servers; more are refused", low=1)
    max_prompt_chars: int | None = setting(
        None,
        "longest text of a prompt, before it is tokenized; null: 32 for each token of the engine's max_seq_len",
        low=1,
    )
    max_prompts: int = setting(MAX_SEQUENCES, "prompts in a call", low=1, high=MAX_SEQUENCES)
    max_n: int = setting(MAX_SEQUENCES, "choices of a prompt", low=1, high=MAX_SEQUENCES)
    max_logprobs: int = setting(
        MAX_LOGPROBS, "alternatives of a token that a call may ask for", low=0, high=MAX_LOGPROBS
    )
    max_logit_bias: int = setting(MAX_LOGIT_BIAS, "entries of a call's logit_bias", low=0, high=MAX_LOGIT_BIAS)
    max_stop_strings: int = setting(MAX_STOP_STRINGS, "stop strings of a call", low=0, high=MAX_STOP_STRINGS)
    max_stop_chars: int = setting(MAX_STOP_CHARS, "characters of a stop string", low=1, high=MAX_STOP_CHARS)
    stall_limit_s: float = setting(
        30.0, "a client that reads nothing for so long loses its own request", low=0.01, high=_DAY_S
    )
    max_connection_age_s: float = setting(
        30.0,
        "after so long a gRPC channel is told to connect anew, which no call notices: so channels spread over the "
        "gateways, and leave one that is replaced",
        low=0.1,
        high=_DAY_S,
    )
    recovery_limit_s: float = setting(
        60.0, "longest time that open requests wait for another scheduler when theirs is lost", low=0.0, high=_DAY_S
    )
    priority_dialect: Literal["vllm", "trtllm"] = setting(
        "vllm", "whose meaning a request's priority has; vllm: whole numbers, lower first; trtllm: 0 to 1, higher first"
    )
    kserve_dialect: Literal["inflight", "llmapi"] = setting(
        "inflight",
        "what Triton's clients call tensorrt_llm; inflight: token ids, as inflight_batcher_llm; llmapi: text, as llmapi",
    )
    metrics_compat: Literal["off", "vllm"] = setting("off", "vllm: /metrics repeats figures under vLLM's names")

    def __post_init__(self) -> None:
        check_values(self)
        if self.port and self.port == self.grpc_port:
            raise Contradiction(f"port and grpc_port must differ; both are {self.port}", "port", "grpc_port")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise Contradiction("tls_certificate and tls_key go together; one is missing", "tls_certificate", "tls_key")
        if self.tls_client_ca is not None and self.tls_certificate is None:
            raise Contradiction("tls_client_ca needs tls_certificate and tls_key", "tls_client_ca")

    @property
    def is_loopback(self) -> bool:
        """No other machine can reach it. A name is one that may mean anything, but for localhost."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def retreat_s(self) -> float:
        """How long a gateway that is replaced goes on serving its clients, until all have moved: gRPC varies the age of
        a connection by a tenth."""
        return 1.1 * self.max_connection_age_s + 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeConfig:
    """Everything, as `--print-config` shows it."""

    engine: Path = field(metadata={"help": "engine directory, made by build-engine", "unit": None})
    model_name: str | None = setting(None, "name that clients use; null: the one in the engine directory")
    log_level: Literal["debug", "info", "warning", "error"] = setting("info", "least severe message that is logged")
    log_format: Literal["text", "json"] = setting("text", "json: one object a line, with role, pid and request id")
    start_timeout_s: float = setting(300.0, "longest time from a process's start to ready", low=0.01, high=_DAY_S)
    hang_timeout_s: float = setting(
        60.0, "a process that makes no progress for so long is replaced; a step takes less", low=0.01, high=_DAY_S
    )
    max_failed_starts: int = setting(5, "a lost process that fails to start so often in a row ends everything", low=1)
    drain_timeout_s: float = setting(30.0, "longest time that open requests get at a stop", low=0.0, high=_DAY_S)
    executor: ExecutorConfig = field(default_factory=ExecutorConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    gateway: GatewayConfig = field(default_factory=GatewayConfig)
    classes: Mapping[str, ClassConfig] = field(default_factory=dict)  # by name; empty: what `policy` says
    tenants: Mapping[str, TenantConfig] = field(default_factory=dict)  # by name
    keys: Mapping[str, KeyConfig] = field(default_factory=dict)  # by name; empty: nobody needs one

    def __post_init__(self) -> None:
        check_values(self)
        check_sections(self)


ConfigSection = ServeConfig | ExecutorConfig | SchedulerConfig | GatewayConfig | ClassConfig | TenantConfig | KeyConfig
