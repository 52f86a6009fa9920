"""What a file of `jetway serve` says under names that the user chooses: classes, tenants and keys."""

from dataclasses import dataclass, field
from typing import Literal

from jetway.scheduler.classes import STANDARD

from .fields import check_values, setting

_DAY_S = 86_400.0
_SHORTEST_S = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassConfig:
    """A service class. Its name is what requests give."""

    level: int = field(metadata={"help": "1 is best; levels are strict", "low": 1, "high": None, "unit": None})
    weight: float = setting(1.0, "share of the level beside its other classes", low=0.001, high=1000.0)
    share_fairly: bool = setting(True, "between tenants; false: in order of priority and arrival, whoever asks")
    share_prefix: bool = setting(False, "let tenants use each other's cached prefixes, which their timing reveals")
    max_queued_requests: int = setting(1024, "requests that may wait for their first start; more are refused", low=1)
    max_queued_tokens: int = setting(1 << 20, "prompt tokens that may wait; more are refused", low=1)
    max_running: int | None = setting(None, "sequences that may run; null: no bound", low=1)
    max_wait_s: float | None = setting(
        None,
        "after so long a request may enter the aged lane, even if better levels have to make room; null: never",
        low=_SHORTEST_S,
        high=_DAY_S,
    )
    queue_timeout_s: float | None = setting(
        None, "longest wait for the first start; null: no bound", low=_SHORTEST_S, high=_DAY_S
    )
    queue_timeout_action: Literal["reject", "delay"] = setting(
        "reject", "reject: end the request as expired; delay: let all that may still start go first"
    )
    itl_objective_s: float | None = setting(
        None, "inter-token latency that bounds a step's prefill while the class decodes", low=_SHORTEST_S, high=_DAY_S
    )
    default_deadline_s: float | None = setting(
        None, "from arrival to the end, for requests that name none", low=_SHORTEST_S, high=_DAY_S
    )

    def __post_init__(self) -> None:
        check_values(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantConfig:
    """A tenant. What is not listed has the defaults."""

    weight: float = setting(1.0, "share of a class beside its other tenants", low=0.001, high=1000.0)

    def __post_init__(self) -> None:
        check_values(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyConfig:
    """An API key, by its hash. Its name is for people."""

    sha256: str = field(metadata={"help": "SHA-256 of the key, in hex", "low": None, "high": None, "unit": None})
    tenant: str | None = setting(None, "whom its calls are counted to; null: the key's name")
    classes: tuple[str, ...] | None = setting(None, "what it may use; null: every class")
    default_class: str = setting(STANDARD, "the class of calls that name none")
    admin: bool = setting(False, "may use jetway.v1.Admin, which shows every tenant's figures")

    def __post_init__(self) -> None:
        check_values(self)
