"""With swap and room in the host pool no token is computed twice, whoever displaces whom."""

from typing import NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jetway.scheduler.classes import ServiceClass
from jetway.scheduler.limits import PreemptionMode
from tests.support.scheduling import Driver, ReferenceExecutor, expected_tokens, make_request, make_scheduler


class Arrival(NamedTuple):
    prompt_len: int
    max_tokens: int
    service_class: str
    num_steps: int  # planned before it comes


CLASSES = [
    ServiceClass(name="x", level=1),
    ServiceClass(name="y", level=2, max_wait_s=8.0),
    ServiceClass(name="z", level=3, max_wait_s=3.0),
]
ARRIVALS = st.lists(
    st.builds(Arrival, st.integers(1, 30), st.integers(1, 16), st.sampled_from("xyz"), st.integers(0, 3)),
    min_size=4,
    max_size=16,
)


@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(arrivals=ARRIVALS, num_blocks=st.integers(12, 30), max_num_seqs=st.integers(1, 5), aged_slots=st.integers(0, 1))
def test_what_is_computed_is_what_was_needed(
    arrivals: list[Arrival], num_blocks: int, max_num_seqs: int, aged_slots: int
) -> None:
    scheduler = make_scheduler(
        num_blocks=num_blocks,
        num_host_blocks=400,
        classes=CLASSES,
        preemption_mode=PreemptionMode.SWAP,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_seqs + 8,
        aged_slots=aged_slots,
    )
    driver = Driver(scheduler, ReferenceExecutor(num_blocks=num_blocks))
    requests = []
    for number, each in enumerate(arrivals):
        for _ in range(each.num_steps):
            driver.now += 1.0
            driver.step()
        requests.append(
            make_request(
                str(number), prompt_len=each.prompt_len, max_tokens=each.max_tokens, service_class=each.service_class
            )
        )
        scheduler.add(requests[-1], driver.now)
    driver.run()
    for request in requests:
        assert driver.tokens(request.id) == expected_tokens(request)
    counters = scheduler.stats(driver.now).counters
    needed = sum(each.prompt_len + each.max_tokens - 1 for each in arrivals)
    assert (counters.num_recomputed_tokens, counters.num_computed_tokens) == (0, needed)
