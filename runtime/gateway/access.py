"""Who may call, and where a call runs: what is the same for every protocol before a body is read."""

from dataclasses import dataclass

from jetway.runtime.errors import InvalidArgument, PermissionDenied
from jetway.scheduler.classes import DEFAULT_CLASSES

from .auth import KeyRing
from .placement import Asked, Caller, Placement, Placer, PriorityDialect

MAX_DEADLINE_MS = 86_400_000  # a day


@dataclass(frozen=True, slots=True)
class Access:
    keys: KeyRing
    placer: Placer


OPEN_ACCESS = Access(KeyRing([]), Placer({each.name: each.level for each in DEFAULT_CLASSES}, PriorityDialect.VLLM))


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What a call says outside its body, and who sends it."""

    request_id: str
    caller: Caller
    placer: Placer
    service_class: str | None = None
    class_param: str = "X-Jetway-Class"  # what the protocol calls `service_class`
    deadline_s: float | None = None

    def place(self, priority: float | None, service_tier: str | None = None) -> Placement:
        """Where the call runs, with what its body says. Raises InvalidArgument and PermissionDenied."""
        asked = Asked(
            header=self.service_class, header_name=self.class_param, priority=priority, service_tier=service_tier
        )
        return self.placer.place(asked, self.caller)


def check_admin(caller: Caller) -> None:
    """Raises PermissionDenied."""
    if not caller.is_admin:
        raise PermissionDenied(
            "this key may not use jetway.v1.Admin; the server's keys say which may, by `admin: true`"
        )


def deadline_s(deadline_ms: int, param: str) -> float:
    """Raises InvalidArgument for less than 1 or more than a day."""
    if not 1 <= deadline_ms <= MAX_DEADLINE_MS:
        raise InvalidArgument(f"{param} must be in [1, {MAX_DEADLINE_MS}], not {deadline_ms}", param=param)
    return deadline_ms / 1000
