"""Which service class a call runs in: one table for everything that clients send.

| what                 | interactive    | standard               | batch | order inside a tenant's queue        |
|----------------------|----------------|------------------------|-------|--------------------------------------|
| X-Jetway-Class       | by name        | by name                | ...   |                                      |
| priority, vLLM       | below 0        | 0, if nothing else is  | above | the number, lower first              |
| priority, TRT-LLM    | above 0.5      | 0.5, likewise          | below | the number, higher first             |
| service_tier, OpenAI | priority, fast | default, scale         | flex  |                                      |
| Triton priority      | level 1        | 0 is the default level | ...   | a level beyond the last: the default |

The first that is there decides, in this order; then the key's default. Two that disagree are an error, so that no client
believes in one of them in vain. But three say nothing against another: the service_tier "auto", OpenAI's "no opinion", is
as if it was not there; so is the middle priority, which clients send unasked, beside another word or where the key may
not use `standard`; and beside a class of the user's own a priority only orders.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from jetway.runtime.errors import InvalidArgument, PermissionDenied
from jetway.scheduler.classes import BATCH, INTERACTIVE, STANDARD

from .words import quoted

TIERS: Mapping[str, str | None] = {
    "priority": INTERACTIVE,
    "fast": INTERACTIVE,
    "auto": None,  # no opinion
    "default": STANDARD,
    "scale": STANDARD,
    "flex": BATCH,
}
BUILT_IN = (INTERACTIVE, STANDARD, BATCH)  # what a priority or a service_tier can mean
TIER_OF_CLASS = {INTERACTIVE: "priority", STANDARD: "default", BATCH: "flex"}
MAX_PRIORITY = 2**53  # up to here a number of JSON or a double is the whole number that it says
TRTLLM_STEPS = 1_000_000  # TensorRT-LLM's float in whole steps: the scheduler orders by integers


class PriorityDialect(StrEnum):
    """Whose meaning `priority` has; the polarities are opposite, so it is said, never guessed."""

    VLLM = "vllm"  # an integer, 0 unless given, lower first
    TRTLLM = "trtllm"  # a float in [0, 1], 0.5 unless given, higher first


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What one call says about its class."""

    header: str | None = None
    header_name: str = "X-Jetway-Class"  # or the field that stands for it where there are no headers
    priority: float | None = None
    service_tier: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who calls, as the API key says: whom it is counted to, and what it may use."""

    tenant: str = ""
    default_class: str = STANDARD
    allowed_classes: frozenset[str] | None = None  # None: every class
    is_admin: bool = False  # may use jetway.v1.Admin

    def may_use(self, service_class: str) -> bool:
        return self.allowed_classes is None or service_class in self.allowed_classes


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a call runs; `service_tier` is what OpenAI's answers echo, `deadline_s` the class's for calls that name none."""

    service_class: str
    priority: int
    service_tier: str
    deadline_s: float | None = None


DEFAULT_PLACEMENT = Placement(STANDARD, 0, TIER_OF_CLASS[STANDARD])


class Placer:
    """Resolves calls against the classes that are served: `levels` maps each class to its level, 1 the best.

    `deadlines_s` has the classes' own deadlines, where they have one.
    """

    def __init__(
        self,
        levels: Mapping[str, int],
        dialect: PriorityDialect,
        *,
        deadlines_s: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        self._levels = levels
        self._dialect = dialect
        self._deadlines_s = deadlines_s

    @property
    def levels(self) -> Mapping[str, int]:
        return self._levels

    def place(self, asked: Asked, caller: Caller) -> Placement:
        """Raises InvalidArgument for what is unknown or contradicts itself, PermissionDenied for what the key may not use."""
        named = self._named(asked)
        if len(set(named.values())) > 1:
            raise InvalidArgument(f"{_listed(named)} disagree", param=next(iter(named)))
        decider, service_class = next(iter(named.items()), ("", self._unnamed(asked, caller)))
        if not caller.may_use(service_class):
            if decider != "service_tier":
                raise PermissionDenied(f"this key may not use class {service_class}", param=decider or None)
            service_class = self._best_of(caller)
        tier = TIER_OF_CLASS.get(service_class, "default")
        return Placement(service_class, self._order(asked.priority), tier, self._deadlines_s.get(service_class))

    def triton(self, level: int, caller: Caller, header: str | None = None) -> tuple[Placement, bool]:
        """Triton's priority: 0 is the default, a level beyond the last silently too; then the flag is True.

        A class that the header names decides. Raises as `place`, and InvalidArgument where it is of another level.
        """
        by_level = {number: name for name, number in sorted(self._levels.items(), reverse=True)}
        remapped = level != 0 and level not in by_level
        if header is not None and level in by_level and self._levels.get(header, level) != level:
            raise InvalidArgument(f"priority (level {level}) and the class {quoted(header)} disagree", param="priority")
        asked = Asked(header=by_level.get(level) if header is None else header)
        return self.place(asked, caller), remapped

    def _named(self, asked: Asked) -> dict[str, str]:
        """The class that each of the three names, in order of precedence. Raises InvalidArgument."""
        named = {}
        if asked.header is not None:
            named[asked.header_name] = asked.header
        if asked.priority is not None:
            meant = self._class_of_priority(asked.priority)
            if meant != STANDARD and asked.header in (None, *BUILT_IN):
                named["priority"] = meant
        if asked.service_tier is not None:
            if asked.service_tier not in TIERS:
                known = ", ".join(TIERS)
                raise InvalidArgument(
                    f"service_tier must be one of {known}, not {quoted(asked.service_tier)}", param="service_tier"
                )
            if (service_class := TIERS[asked.service_tier]) is not None:
                named["service_tier"] = service_class
        for param, service_class in named.items():
            if service_class not in self._levels:
                known = ", ".join(self._levels)
                raise InvalidArgument(
                    f"{param} asks for class {quoted(service_class)}, which is not served; classes are {known}",
                    param=param,
                )
        return named

    def _unnamed(self, asked: Asked, caller: Caller) -> str:
        """The class of a call that names none; its priority, if it has one, is the middle one."""
        return STANDARD if asked.priority is not None and caller.may_use(STANDARD) else caller.default_class

    def _class_of_priority(self, priority: float) -> str:
        if self._dialect is PriorityDialect.TRTLLM:
            if not 0.0 <= priority <= 1.0:
                raise InvalidArgument(f"priority must be in [0, 1], not {priority}", param="priority")
            urgency = priority - 0.5
        else:
            if not abs(priority) <= MAX_PRIORITY or priority != int(priority):
                message = f"priority must be a whole number in [-{MAX_PRIORITY}, {MAX_PRIORITY}], not {priority}"
                raise InvalidArgument(message, param="priority")
            urgency = -priority
        return INTERACTIVE if urgency > 0 else BATCH if urgency < 0 else STANDARD

    def _order(self, priority: float | None) -> int:
        """The scheduler's number: lower first."""
        if priority is None:
            return 0
        return round((0.5 - priority) * TRTLLM_STEPS) if self._dialect is PriorityDialect.TRTLLM else int(priority)

    def _best_of(self, caller: Caller) -> str:
        return min((name for name in self._levels if caller.may_use(name)), key=self._levels.__getitem__)


def _listed(named: Mapping[str, str]) -> str:
    return " and ".join(f"{param} ({service_class})" for param, service_class in named.items())
