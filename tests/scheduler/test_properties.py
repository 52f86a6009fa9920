"""Whatever is called in whatever order: the invariants of DESIGN section 4 hold after every move."""

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from jetway.scheduler.class_queue import QueueFull
from jetway.scheduler.classes import ServiceClass, TimeoutAction
from jetway.scheduler.events import FinishReason, RequestFinished, SequenceFinished
from jetway.scheduler.limits import PreemptionMode
from jetway.scheduler.plan import StepPlan
from jetway.scheduler.preemption import Reluctance
from jetway.scheduler.request import InvalidRequest, Request, SequenceId
from jetway.scheduler.stats import Blocked
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

MOST_IN_FLIGHT = 4
LIMITS = st.fixed_dictionaries(
    {
        "max_num_seqs": st.sampled_from([4, 3, 6, 2, 1]),
        "preemption_mode": st.sampled_from(PreemptionMode),
        "watermark": st.sampled_from([0.0, 0.1, 0.3]),
        "aged_slots": st.integers(0, 2),
        "reluctance": st.sampled_from([Reluctance(), Reluctance(min_steps_between=0, max_preemptions=1)]),
        "max_waiting_time_s": st.sampled_from([0.0, 0.0, 3.0]),
        "write_through": st.booleans(),
        "mix_prefill": st.booleans(),
        "max_prefill_seqs": st.sampled_from([None, None, 1, 2]),
        "long_prefill_token_threshold": st.sampled_from([0, 0, 6]),
        "num_micro_batches": st.sampled_from([1, 1, 2, 5]),
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
        max_queued_requests=draw(st.sampled_from([1024, 1024, 2])),
        max_queued_tokens=draw(st.sampled_from([1 << 20, 1 << 20, 60])),
        max_wait_s=draw(st.sampled_from([None, 5.0])),
        queue_timeout_s=timeout_s,
        queue_timeout_action=action,
        itl_objective_s=draw(st.sampled_from([None, None, 0.01])),
        default_deadline_s=draw(st.sampled_from([None, None, None, 30.0])),
    )


ASK = st.fixed_dictionaries(
    {
        "length": st.sampled_from([9, 3, 14, 24, 1, 40]),
        "output": st.sampled_from([6, 12, 1, 3, 30]),
        "given": st.sampled_from([None, None, None, 0, 1, 5]),
        "n": st.sampled_from([1, 1, 2, 3]),
        "prefix": st.sampled_from("pq"),
        "prefix_len": st.sampled_from([0, 3, 8, 20]),
        "service_class": st.sampled_from("xyz"),
        "tenant": st.sampled_from("abc"),
        "priority": st.integers(-1, 1),
        "deadline_s": st.sampled_from([None, None, None, 15.0]),
    }
)
CLASSES = st.tuples(*[service_class(name) for name in "xyz"]).map(list)


class SchedulerMachine(RuleBasedStateMachine):
    """The whole public face, with random sizes and 0 to 4 plans in flight; tokens are those of the request alone."""

    @initialize(
        num_blocks=st.sampled_from([12, 20, 7, 4, 2, 1]),
        num_host_blocks=st.sampled_from([0, 1, 3, 10, 40]),
        spare_budget=st.integers(0, 12),
        depth=st.integers(0, MOST_IN_FLIGHT),
        limits=LIMITS,
        classes=CLASSES,
        tenant_weights=st.fixed_dictionaries({"a": st.sampled_from([1.0, 3.0])}),
    )
    def start(
        self,
        num_blocks: int,
        num_host_blocks: int,
        spare_budget: int,
        depth: int,
        limits: dict[str, Any],
        classes: list[ServiceClass],
        tenant_weights: dict[str, float],
    ) -> None:
        max_num_seqs = limits["max_num_seqs"]
        self.engine = make_engine(num_blocks=num_blocks, num_host_blocks=num_host_blocks, max_num_seqs=max_num_seqs)
        self.num_blocks, self.num_host_blocks = num_blocks, num_host_blocks
        self.classes = {each.name: each for each in classes}
        self.timed_out_classes = {
            each.name
            for each in classes
            if (each.queue_timeout_s is not None and each.queue_timeout_action is TimeoutAction.REJECT)
            or each.default_deadline_s is not None
        }
        self.preempts = limits["preemption_mode"] is not PreemptionMode.OFF
        self.holds = limits["max_waiting_time_s"] > 0
        limits["aged_slots"] = min(limits["aged_slots"], max_num_seqs)
        scheduler = make_scheduler(
            num_blocks=num_blocks,
            num_host_blocks=num_host_blocks,
            classes=classes,
            max_num_batched_tokens=max_num_seqs + BLOCK_SIZE + spare_budget,
            tenant_weights=tenant_weights,
            **limits,
        )
        self.driver = Driver(scheduler, ReferenceExecutor(num_blocks=num_blocks), depth=depth)
        self.requests: dict[str, Request] = {}
        self.given: dict[SequenceId, int] = {}  # tokens that a scheduler before this one had generated
        self.disturbed: set[str] = set()
        self.lost = False
        self.num_losses = 0

    @rule(asks=st.lists(ASK, min_size=1, max_size=4))
    def add(self, asks: list[dict[str, Any]]) -> None:
        for ask in asks:
            self._add(**ask)

    def _add(self, length: int, output: int, given: int | None, **fields: Any) -> None:
        """With `given` it had been accepted before, and goes on from there: that is never refused for a full queue."""
        pool = self.num_blocks * BLOCK_SIZE
        length = min(length, pool - 1)
        output = min(output, pool - length)
        request = make_request(str(len(self.requests)), prompt_len=length, max_tokens=output, **fields)
        generated = None
        if given is not None:
            generated = {0: expected_tokens(request)[: min(given, output - 1)]}
        try:
            self.driver.scheduler.add(request, self.driver.now, generated)
        except QueueFull:
            assert generated is None
            return
        except InvalidRequest:
            assert request.n * length > self.classes[request.service_class].max_queued_tokens
            return
        if request.deadline_s is not None or request.service_class in self.timed_out_classes:
            self.disturbed.add(request.id)
        self.requests[request.id] = request
        ids = request.sequence_ids if generated is None else request.sequence_ids[:1]
        self.given |= {id: 0 if generated is None else len(generated[0]) for id in ids}

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

    @rule(count=st.integers(1, 10))
    def step(self, count: int) -> None:
        for _ in range(count):
            plan = self._step()
        if plan is None:
            self._check_idle()

    def _step(self) -> StepPlan | None:
        plan = self.driver.step()
        if plan is not None:
            self._check_order(plan)
        return plan

    def _check_order(self, plan: StepPlan) -> None:
        """No better level waits for a worse one: for its slots, its budget, or unsaid. Classes that age are left out.

        Blocks are: a worse level runs on where even all of its blocks would not do.
        """
        stats = self.driver.scheduler.stats(self.driver.now)
        if stats.counters.num_losses >= MAX_ACCIDENTS:
            return  # a suspect may have run alone
        starts = {start.slot for start in plan.starts}
        rows: list[tuple[int, int, bool]] = []  # level, tokens, started
        for slot, num_tokens in zip(plan.row_slots, plan.row_tokens, strict=True):
            request = self.requests[self.driver.executor.residents[slot].sequence_id.request_id]
            if self.classes[request.service_class].max_wait_s is None:
                rows.append((self.classes[request.service_class].level, num_tokens, slot in starts))
        waiting = {each.level for each in stats.classes if each.num_queued or each.num_displaced}
        for level in waiting:
            worse = [row for row in rows if row[0] > level]
            reason = stats.blocked.get(level)
            assert reason or not any(started for *_, started in worse), "it waits, and nothing says why"
            if reason == Blocked.SLOTS:
                assert not (worse if self.preempts else [row for row in worse if row[2]])
            if reason == Blocked.BUDGET:
                assert sum(tokens for _, tokens, _ in worse if tokens > 1) < 2 * BLOCK_SIZE

    def _check_idle(self) -> None:
        """Nothing was planned: once what is in flight has come back, nothing lives that could run."""
        if self.lost:
            return
        for _ in range(MOST_IN_FLIGHT + 1):
            if self._step() is not None:
                return
        stats = self.driver.scheduler.stats(self.driver.now)
        assert stats.num_running == 0
        assert stats.num_waiting == 0 or self.holds

    @rule(seconds=st.sampled_from([0.5, 2.0, 10.0]))
    def wait(self, seconds: float) -> None:
        self.driver.now += seconds

    @precondition(lambda self: not self.lost and len(self.driver.plans) > 8 * self.num_losses)
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
        self.num_losses += 1

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
        for _ in range(2):
            self._run()
            self.driver.now += 10.0  # what is held for company is held no more
        log = self.driver.log
        assert sorted(e.request_id for e in log if isinstance(e, RequestFinished)) == sorted(self.requests)
        ended = [event.sequence_id for event in log if isinstance(event, SequenceFinished)]
        assert sorted(map(str, ended)) == sorted(map(str, self.given))
        for request in self.requests.values():
            self._check_tokens(request)
        stats = self.driver.scheduler.stats(0.0)
        assert (stats.num_running, stats.num_waiting) == (0, 0)
        assert (stats.num_free_device_blocks, stats.num_free_host_blocks) == (self.num_blocks, self.num_host_blocks)
        assert self.driver.executor.residents == {}

    def _run(self) -> None:
        """Step until nothing is left to do."""
        num_idle = 0
        for _ in range(10_000):
            num_idle = 0 if self._step() else num_idle + 1
            if num_idle > MOST_IN_FLIGHT + 1:
                return
        raise AssertionError("still busy after 10,000 steps")

    def _check_tokens(self, request: Request) -> None:
        finishes = self.driver.finishes()
        for id in request.sequence_ids:
            if id not in self.given:
                continue
            tokens = self.driver.tokens(request.id, id.index)
            expected = expected_tokens(request, id.index)
            assert tokens == expected[self.given[id] :][: len(tokens)]
            if request.id not in self.disturbed:
                assert finishes[str(id)] == (FinishReason.LENGTH, len(expected))


TestScheduler = pytest.mark.timeout(120)(SchedulerMachine.TestCase)
TestScheduler.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
