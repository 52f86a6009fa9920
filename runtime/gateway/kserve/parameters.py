"""The parameters of a request that mean something; a client may send others."""

from collections.abc import Mapping
from dataclasses import dataclass

from jetway.runtime.errors import InvalidArgument

PRIORITY, TIMEOUT = "jetway_priority", "jetway_timeout"  # as Triton's own, which it shows to no model behind it
FINAL_RESPONSE = "jetway_final_response"  # of /generate_stream, whose events do not tell the last otherwise
ERROR_CODE = "jetway_error_code"  # what an error event says beside, as gRPC names it
EMPTY_FINAL = "triton_enable_empty_final_response"
_RESERVED = "triton_"
_MICROSECONDS = 1_000_000

Parameter = bool | int | float | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """`priority` is a level, 0 the default. `empty_final`: a stream's last response has no outputs. `says_final`: each
    response in JSON says whether it is the last, and an error its code.
    """

    priority: int = 0
    queue_timeout_s: float | None = None
    empty_final: bool = False
    says_final: bool = False


def parse(given: Mapping[str, Parameter]) -> Parameters:
    """Jetway's own names go before Triton's. Raises InvalidArgument in Triton's words."""
    for name in given:
        if name.startswith(_RESERVED) and name != EMPTY_FINAL:
            raise InvalidArgument(
                f"parameter keys starting with '{_RESERVED}' are reserved for Triton usage. Only the following keys "
                f"starting with '{_RESERVED}' are allowed: {EMPTY_FINAL}",
                param="parameters",
            )
    empty_final = given.get(EMPTY_FINAL, False)
    if not isinstance(empty_final, bool):
        raise InvalidArgument(
            f"invalid value type for '{EMPTY_FINAL}' parameter, expected bool_param.", param=EMPTY_FINAL
        )
    return Parameters(
        priority=_priority(given.get(PRIORITY, given.get("priority", 0))),
        queue_timeout_s=_queue_timeout_s(given.get(TIMEOUT, given.get("timeout", 0))),
        empty_final=empty_final,
        says_final=given.get(FINAL_RESPONSE) is True,
    )


def parse_own(given: Mapping[str, Parameter]) -> Parameters:
    """Of requests in which Triton's names mean nothing. Raises InvalidArgument."""
    return parse({name: given[name] for name in (PRIORITY, TIMEOUT, FINAL_RESPONSE) if name in given})


def _priority(value: Parameter) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgument(
            "invalid value type for 'priority' parameter, expected int64_param or uint64_param.", param="priority"
        )
    if value < 0:
        raise InvalidArgument("invalid value for 'priority', expected value >= 0.", param="priority")
    return value


def _queue_timeout_s(value: Parameter) -> float | None:
    """Of microseconds; none unless above 0, as there."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgument("invalid value type for 'timeout' parameter, expected int64_param.", param="timeout")
    return value / _MICROSECONDS if value > 0 else None
