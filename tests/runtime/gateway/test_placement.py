"""What clients send, and the class it means."""

import pytest

from jetway.runtime.errors import InvalidArgument, PermissionDenied
from jetway.runtime.gateway.placement import Asked, Caller, Placement, Placer, PriorityDialect

LEVELS = {"interactive": 1, "standard": 2, "batch": 3, "lab": 4}
ANYONE = Caller()
VLLM = Placer(LEVELS, PriorityDialect.VLLM)
TRTLLM = Placer(LEVELS, PriorityDialect.TRTLLM)


@pytest.mark.parametrize(
    ("asked", "placement"),
    [
        (Asked(), Placement("standard", 0, "default")),
        (Asked(header="batch"), Placement("batch", 0, "flex")),
        (Asked(priority=-3), Placement("interactive", -3, "priority")),
        (Asked(priority=0), Placement("standard", 0, "default")),
        (Asked(priority=7), Placement("batch", 7, "flex")),
        (Asked(service_tier="priority"), Placement("interactive", 0, "priority")),
        (Asked(service_tier="fast"), Placement("interactive", 0, "priority")),
        (Asked(service_tier="auto"), Placement("standard", 0, "default")),
        (Asked(service_tier="default"), Placement("standard", 0, "default")),
        (Asked(service_tier="scale"), Placement("standard", 0, "default")),
        (Asked(service_tier="flex"), Placement("batch", 0, "flex")),
        (Asked(header="batch", priority=2, service_tier="flex"), Placement("batch", 2, "flex")),
        (Asked(header="interactive", service_tier="auto"), Placement("interactive", 0, "priority")),
        (Asked(priority=7, service_tier="auto"), Placement("batch", 7, "flex")),
        (Asked(header="batch", priority=0), Placement("batch", 0, "flex")),
        (Asked(priority=0, service_tier="flex"), Placement("batch", 0, "flex")),
        (Asked(header="lab", priority=3), Placement("lab", 3, "default")),
        (Asked(header="lab", priority=-3), Placement("lab", -3, "default")),
    ],
)
def test_the_table(asked: Asked, placement: Placement) -> None:
    assert VLLM.place(asked, ANYONE) == placement


@pytest.mark.parametrize(
    ("priority", "service_class"), [(1.0, "interactive"), (0.51, "interactive"), (0.5, "standard"), (0.0, "batch")]
)
def test_tensorrt_llms_float_is_higher_first(priority: float, service_class: str) -> None:
    assert TRTLLM.place(Asked(priority=priority), ANYONE).service_class == service_class


def test_inside_a_class_both_dialects_order_as_their_users_mean_it() -> None:
    urgent, patient = (TRTLLM.place(Asked(priority=value), ANYONE).priority for value in (0.9, 0.6))
    assert urgent < patient
    urgent, patient = (VLLM.place(Asked(priority=value), ANYONE).priority for value in (-9, -6))
    assert urgent < patient


@pytest.mark.parametrize(
    ("placer", "asked", "param", "message"),
    [
        (VLLM, Asked(service_tier="gold"), "service_tier", "must be one of priority, fast, auto, default, scale, flex"),
        (VLLM, Asked(header="gold"), "X-Jetway-Class", "asks for class 'gold', which is not served"),
        (
            Placer({"standard": 1}, PriorityDialect.VLLM),
            Asked(service_tier="flex"),
            "service_tier",
            "service_tier asks for class 'batch', which is not served; classes are standard",
        ),
        (VLLM, Asked(priority=0.5), "priority", "must be a whole number in .*, not 0.5"),
        (TRTLLM, Asked(priority=2), "priority", r"must be in \[0, 1\], not 2"),
        (
            VLLM,
            Asked(priority=-1, service_tier="flex"),
            "priority",
            r"priority \(interactive\) and service_tier \(batch\) disagree",
        ),
        (VLLM, Asked(header="standard", priority=4), "X-Jetway-Class", "disagree"),
        (VLLM, Asked(header="lab", service_tier="flex"), "X-Jetway-Class", "disagree"),
        (VLLM, Asked(header="lab", priority=0.5), "priority", "must be a whole number"),
    ],
)
def test_what_is_unknown_or_contradicts_itself_is_refused(
    placer: Placer, asked: Asked, param: str, message: str
) -> None:
    with pytest.raises(InvalidArgument, match=message) as error:
        placer.place(asked, ANYONE)
    assert error.value.param == param


class TestKeys:
    caller = Caller(tenant="acme", default_class="batch", allowed_classes=frozenset({"standard", "batch"}))

    def test_the_keys_default_is_used_when_the_call_says_nothing(self) -> None:
        assert VLLM.place(Asked(), self.caller).service_class == "batch"

    def test_the_middle_priority_is_standard_where_the_key_may_use_it_and_else_says_nothing(self) -> None:
        assert VLLM.place(Asked(priority=0), self.caller).service_class == "standard"
        only_batch = Caller(default_class="batch", allowed_classes=frozenset({"batch"}))
        assert VLLM.place(Asked(priority=0), only_batch) == Placement("batch", 0, "flex")
        assert TRTLLM.place(Asked(priority=0.5), only_batch) == Placement("batch", 0, "flex")

    def test_the_tier_auto_says_nothing(self) -> None:
        assert VLLM.place(Asked(service_tier="auto"), self.caller) == Placement("batch", 0, "flex")

    @pytest.mark.parametrize("asked", [Asked(header="interactive"), Asked(priority=-1)])
    def test_a_class_that_the_key_may_not_use_is_denied(self, asked: Asked) -> None:
        with pytest.raises(PermissionDenied, match="this key may not use class interactive"):
            VLLM.place(asked, self.caller)

    def test_a_service_tier_falls_to_the_keys_best_and_says_so(self) -> None:
        assert VLLM.place(Asked(service_tier="priority"), self.caller) == Placement("standard", 0, "default")


@pytest.mark.parametrize(
    ("level", "service_class", "remapped"),
    [(0, "standard", False), (1, "interactive", False), (3, "batch", False), (99, "standard", True)],
)
def test_triton_levels_as_triton_has_them(level: int, service_class: str, remapped: bool) -> None:
    placement, was_remapped = VLLM.triton(level, ANYONE)
    assert (placement.service_class, was_remapped) == (service_class, remapped)


def test_beside_a_triton_level_the_header_decides_and_must_not_contradict_it() -> None:
    assert VLLM.triton(0, ANYONE, "batch")[0].service_class == "batch"
    assert VLLM.triton(3, ANYONE, "batch")[0].service_class == "batch"
    assert VLLM.triton(99, ANYONE, "batch") == (Placement("batch", 0, "flex"), True)
    with pytest.raises(InvalidArgument, match=r"priority \(level 1\) and the class 'batch' disagree"):
        VLLM.triton(1, ANYONE, "batch")
