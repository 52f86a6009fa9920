"""Service classes: named priority levels with their limits."""

from dataclasses import dataclass
from enum import StrEnum
from math import inf


class TimeoutAction(StrEnum):
    """What a queue timeout does."""

    REJECT = "reject"  # end the request as expired
    DELAY = "delay"  # let everything of its tenant that waits now go first


class ClassError(ValueError):
    """A class contradicts itself or another; says which, with the values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceClass:
    """Who goes before whom, and how much may wait. Raises ClassError.

    Levels are strict: 1 is best, as in Triton. Classes of one level share it by `weight`, tenants inside a class by
    theirs. Sequences that ran before are exempt from the queue's limits.
    """

    name: str = "standard"
    level: int = 2
    weight: float = 1.0
    share_fairly: bool = True  # between tenants; False: in order of priority and arrival, whoever asks
    share_prefix: bool = False  # let tenants use each other's cached prefixes, which their timing reveals
    max_queued_requests: int = 1024
    max_queued_tokens: int = 1 << 20  # prompt tokens that wait for their first start
    max_running: int | None = None  # sequences
    max_wait_s: float | None = None  # after so long a request may enter the aged lane
    queue_timeout_s: float | None = None  # for the first start
    queue_timeout_action: TimeoutAction = TimeoutAction.REJECT
    itl_objective_s: float | None = None  # inter-token latency: bounds the step while a sequence of the class runs
    default_deadline_s: float | None = None  # from arrival to the end, for requests that name none

    def __post_init__(self) -> None:
        if not self.name:
            raise ClassError("a class needs a name")
        for name in ("level", "max_queued_requests", "max_queued_tokens", "max_running"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ClassError(f"class {self.name}: {name} must be a whole number, at least 1, not {value}")
        for name in ("weight", "max_wait_s", "queue_timeout_s", "itl_objective_s", "default_deadline_s"):
            value = getattr(self, name)
            if value is not None and not 0 < value < inf:
                raise ClassError(f"class {self.name}: {name} must be above 0 and finite, not {value}")
        never_ages = (self.max_wait_s or 0.0) >= (self.queue_timeout_s or inf)
        if never_ages and self.queue_timeout_action is TimeoutAction.REJECT:
            raise ClassError(
                f"class {self.name}: max_wait_s is {self.max_wait_s}, "
                f"but queue_timeout_s ends a request after {self.queue_timeout_s}"
            )


INTERACTIVE, STANDARD, BATCH = "interactive", "standard", "batch"

DEFAULT_CLASSES = (
    ServiceClass(name=INTERACTIVE, level=1),
    ServiceClass(name=STANDARD, level=2),
    ServiceClass(name=BATCH, level=3, max_wait_s=60.0),
)
