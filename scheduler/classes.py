"""Service classes: named priority levels with their limits."""

from dataclasses import dataclass
from enum import StrEnum


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
        if self.level < 1:
            raise ClassError(f"class {self.name}: level must be at least 1, not {self.level}")
        if not self.weight > 0:
            raise ClassError(f"class {self.name}: weight must be above 0, not {self.weight}")
        for name in ("max_running", "max_wait_s", "queue_timeout_s", "itl_objective_s", "default_deadline_s"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ClassError(f"class {self.name}: {name} must be above 0, not {value}")


INTERACTIVE, STANDARD, BATCH = "interactive", "standard", "batch"

DEFAULT_CLASSES = (
    ServiceClass(name=INTERACTIVE, level=1),
    ServiceClass(name=STANDARD, level=2),
    ServiceClass(name=BATCH, level=3, max_wait_s=60.0),
)
