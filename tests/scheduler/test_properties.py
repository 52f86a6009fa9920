"""Whatever is called in whatever order: the invariants of DESIGN section 4 hold after every move."""

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from jetway.scheduler.classes import ServiceClass, TimeoutAction
from jetway.scheduler.events import FinishReason, RequestFinished, SequenceFinished
from jetway.scheduler.limits import PreemptionMode
from jetway.scheduler.request import Request, SequenceId
from jetway.scheduler.suspects import MAX_ACCIDENTS
from tests.support.scheduling import (
    BLOCK_SIZE,
    Driver,
    ReferenceExecutor,
    expected_tokens,
    make_engine,
    make_request,
    make_scheduler,
)

LIMITS = st.fixed_dictionaries(
    {
        "max_num_seqs": st.integers(1, 4),
        "preemption_mode": st.sampled_from(PreemptionMode),
        "watermark": st.sampled_from([0.0, 0.1, 0.3]),
        "aged_slots": st.integers(0, 1),
        "write_through": st.booleans(),
        "mix_prefill": st.booleans(),
        "max_prefill_seqs": st.sampled_from([None, None, 1, 2]),
        "long_prefill_token_threshold": st.sampled_from([0, 0, 6]),
    }
)


@st.composite
def service_class(draw: st.DrawFn, name: str) -> ServiceClass:
    timeout_s, action = draw(
        st.sampled_from([(None, TimeoutAction.REJECT), (20.0, TimeoutAction.REJECT), (20.0, TimeoutAction.DELAY)])
    )
    return ServiceClass(
        name=name,
        level=draw(st.integers(1, 3)),
        weight=draw(st.sampled_from([1.0, 2.5])),
        share_fairly=draw(st.booleans()),
        share_prefix=draw(st.booleans()),
        max_running=draw(st.sampled_from([None, None, 1, 2])),
        max_wait_s=draw(st.sampled_from([None, 5.0])),
        queue_timeout_s=timeout_s,
        queue_timeout_action=action,
        itl_objective_s=draw(st.sampled_from([None, None, 0.01])),
    )


CLASSES = st.tuples(*[service_class(name) for name in "xyz"]).map(list)


class SchedulerMachine(RuleBasedStateMachine):
    """The whole public face, with random sizes and 0 to 2 plans in flight; tokens are those of the request alone."""

    @initialize(
        num_blocks=st.integers(2, 12),
        num_host_blocks=st.sampled_from([0, 1, 3, 10, 40]),
        spare_budget=st.integers(0, 12),
        depth=st.integers(0, 2),
        limits=LIMITS,
        classes=CLASSES,
    )
    def start(
        self,
        num_blocks: int,
        num_host_blocks: int,
        spare_budget: int,
        depth: int,
        limits: dict[str, Any],
        classes: list[ServiceClass],
    ) -> None:
        max_num_seqs = limits["max_num_seqs"]
        self.engine = make_engine(num_blocks=num_blocks, num_host_blocks=num_host_blocks, max_num_seqs=max_num_seqs)
        self.num_blocks, self.num_host_blocks = num_blocks, num_host_blocks
        self.timed_out_classes = {
            each.name
            for each in classes
            if each.queue_timeout_s is not None and each.queue_timeout_action is TimeoutAction.REJECT
        }
        limits["aged_slots"] = min(limits["aged_slots"], max_num_seqs - 1)
        scheduler = make_scheduler(
            num_blocks=num_blocks,
            num_host_blocks=num_host_blocks,
            classes=classes,
            max_num_batched_tokens=max_num_seqs + BLOCK_SIZE + spare_budget,
            **limits,
        )
        self.driver = Driver(scheduler, ReferenceExecutor(num_blocks=num_blocks), depth=depth)
        self.requests: dict[str, Request] = {}
        self.disturbed: set[str] = set()
        self.lost = False

    @rule(
        length=st.integers(1, 40),
        output=st.integers(1, 40),
        fields=st.fixed_dictionaries(
            {
                "n": st.integers(1, 3),
                "prefix": st.sampled_from("pq"),
                "prefix_len": st.integers(0, 20),
                "service_class": st.sampled_from("xyz"),
                "tenant": st.sampled_from("abc"),
                "priority": st.integers(-1, 1),
                "deadline_s": st.sampled_from([None, None, None, 15.0]),
            }
        ),
    )
    def add(self, length: int, output: int, fields: dict[str, Any]) -> None:
        pool = self.num_blocks * BLOCK_SIZE
        length = min(length, pool - 1)
        output = min(output, pool - length)
        request = make_request(str(len(self.requests)), prompt_len=length, max_tokens=output, **fields)
        if request.deadline_s is not None or request.service_class in self.timed_out_classes:
            self.disturbed.add(request.id)
        self.requests[request.id] = request
        self.driver.scheduler.add(request, self.driver.now)

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.requests)))
        self.disturbed.add(id)
        self.driver.scheduler.abort(id)

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), kept=st.integers(0, 3))
    def finish(self, data: st.DataObject, kept: int) -> None:
        id = data.draw(st.sampled_from(sorted(self.requests)))
        self.disturbed.add(id)
        self.driver.scheduler.finish(SequenceId(id, 0), kept)

    @rule(count=st.integers(1, 5))
    def step(self, count: int) -> None:
        for _ in range(count):
            self.driver.step()

    @rule(seconds=st.sampled_from([0.5, 2.0, 10.0]))
    def wait(self, seconds: float) -> None:
        self.driver.now += seconds

    @precondition(lambda self: not self.lost)
    @rule()
    def lose(self) -> None:
        self.driver.lose_executor(ReferenceExecutor(num_blocks=self.num_blocks))
        self.driver.log += (events := self.driver.scheduler.events())
        blamed = {
            event.sequence_id.request_id
            for event in events
            if isinstance(event, SequenceFinished) and event.reason is FinishReason.FAILED
        }
        assert not blamed or self.driver.scheduler.stats(0.0).counters.num_losses > MAX_ACCIDENTS
        self.disturbed |= blamed
        self.lost = True

    @precondition(lambda self: self.lost)
    @rule()
    def recover(self) -> None:
        self.driver.scheduler.executor_ready(self.engine, self.driver.now)
        self.lost = False

    @invariant()
    def it_adds_up(self) -> None:
        self.driver.scheduler.check()

    def teardown(self) -> None:
        """Everything ends: one terminal event a request, one finish a sequence, the right tokens, empty pools."""
        if not hasattr(self, "driver"):
            return
        if self.lost:
            self.recover()
        self.driver.run()
        log = self.driver.log
        assert sorted(e.request_id for e in log if isinstance(e, RequestFinished)) == sorted(self.requests)
        ended = [event.sequence_id for event in log if isinstance(event, SequenceFinished)]
        assert sorted(map(str, ended)) == sorted(str(id) for r in self.requests.values() for id in r.sequence_ids)
        for request in self.requests.values():
            self._check_tokens(request)
        stats = self.driver.scheduler.stats(0.0)
        assert (stats.num_running, stats.num_waiting) == (0, 0)
        assert (stats.num_free_device_blocks, stats.num_free_host_blocks) == (self.num_blocks, self.num_host_blocks)
        assert self.driver.executor.residents == {}

    def _check_tokens(self, request: Request) -> None:
        finishes = self.driver.finishes()
        for id in request.sequence_ids:
            tokens = self.driver.tokens(request.id, id.index)
            expected = expected_tokens(request, id.index)
            assert tokens == expected[: len(tokens)]
            if request.id not in self.disturbed:
                assert finishes[str(id)] == (FinishReason.LENGTH, len(expected))


TestScheduler = pytest.mark.timeout(120)(SchedulerMachine.TestCase)
TestScheduler.settings = settings(
    max_examples=250,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
