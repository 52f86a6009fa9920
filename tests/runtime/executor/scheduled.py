"""The real scheduler over a real executor's end: `Slots` on an engine, of whose pools it may use a part."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from jetway.runtime.executor.base import Engine
from jetway.runtime.executor.steps import Launched, Slots
from jetway.runtime.executor.wire import result_to_proto
from jetway.scheduler.classes import ServiceClass
from jetway.scheduler.events import Event, SequenceFinished, TokenSampled
from jetway.scheduler.limits import Limits, PreemptionMode
from jetway.scheduler.plan import StepPlan, StepResult
from jetway.scheduler.request import Request, SequenceId
from jetway.scheduler.scheduler import Scheduler
from jetway.scheduler.stats import Counters
from jetway.v1 import executor_pb2
from tests.runtime.executor.driving import Job

CLASSES = (ServiceClass(name="high", level=1), ServiceClass(name="low", level=2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What a schedule may use of an engine."""

    num_device_blocks: int
    num_host_blocks: int = 0
    max_num_seqs: int = 8
    budget: int = 128  # tokens a step
    mode: PreemptionMode = PreemptionMode.SWAP
    write_through: bool = False
    depth: int = 0  # plans that may go ahead of results
    num_micro_batches: int = 1


class Driver:
    """Steps the scheduler and the engine, and keeps plans, results and events. No time passes.

    As many steps are launched ahead as plans may go ahead of results, and the engine takes; but before every second one
    all are collected, as if the device had been quick.
    """

    def __init__(self, engine: Engine, room: Room, slots: Slots | None = None) -> None:
        """`slots`, unless given, are those of the engine alone."""
        description = replace(
            engine.describe(), num_device_blocks=room.num_device_blocks, num_host_blocks=room.num_host_blocks
        )
        limits = Limits(
            max_num_seqs=room.max_num_seqs,
            max_num_batched_tokens=room.budget,
            preemption_mode=room.mode,
            watermark=0.0,
            write_through=room.write_through,
            num_micro_batches=room.num_micro_batches,
        )
        self._scheduler = Scheduler(limits, CLASSES, description)
        self._slots = slots or Slots(engine)
        self._max_launches = engine.max_launches
        self._launched = deque[Launched]()  # and not collected
        self._depth = room.depth
        self._num_committed = 0
        self._events: list[Event] = []
        self.new_events: list[Event] = []  # of the last step
        self.plans: list[StepPlan] = []
        self.num_known: list[int] = []  # results that were committed when each was made
        self.results: list[StepResult] = []

    def add(self, id: str, job: Job, service_class: str = "low", *, n: int = 1, tenant: str = "") -> None:
        self._scheduler.add(
            Request(
                id=id,
                prompt=job.prompt,
                sampling=job.sampling,
                max_tokens=job.num_tokens,
                n=n,
                service_class=service_class,
                tenant=tenant,
            ),
            0.0,
        )

    def abort(self, id: str) -> None:
        self._scheduler.abort(id)

    def step(self) -> bool:
        """Plan and launch, then commit the oldest result unless it may wait; whether there was anything to do."""
        plan = self._scheduler.plan(0.0)
        if plan is not None:
            self._launch(plan)
        num_waiting = len(self.plans) - self._num_committed
        if not num_waiting:
            return False
        if plan is None or num_waiting > self._depth:
            if self._num_committed == len(self.results):
                self._collect()
            self._scheduler.commit(self.results[self._num_committed], 0.0)
            self._num_committed += 1
        self._scheduler.check()
        self.new_events = self._scheduler.events()
        self._events += self.new_events
        return True

    def _launch(self, plan: StepPlan) -> None:
        most = self._max_launches - 1 if len(self.plans) % 2 else 0
        while len(self._launched) > most:
            self._collect()
        self.plans.append(plan)
        self.num_known.append(self._num_committed)
        self._launched.append(self._slots.launch(self._slots.begin(plan)))

    def _collect(self) -> None:
        self.results.append(untimed(self._slots.collect(self._launched.popleft())))

    def leave(self) -> None:
        """End the session, as it stands: nobody asks for what is still launched."""
        while self._launched:
            self._collect()

    def run(self) -> None:
        while self.step():
            pass

    @property
    def counters(self) -> Counters:
        return self._scheduler.stats(0.0).counters

    def sampled(self, id: str, index: int = 0) -> list[TokenSampled]:
        """Tokens and log-probabilities of one sequence."""
        wanted = SequenceId(id, index)
        return [event for event in self._events if isinstance(event, TokenSampled) and event.sequence_id == wanted]

    def tokens(self, id: str, index: int = 0) -> list[int]:
        return [event.token for event in self.sampled(id, index)]

    def num_cached_tokens(self, id: str) -> list[int]:
        """Of each sequence of the request, as it finished."""
        finished = (event for event in self._events if isinstance(event, SequenceFinished))
        return [event.num_cached_tokens for event in finished if event.sequence_id.request_id == id]


def untimed(result: StepResult) -> StepResult:
    return replace(result, elapsed_s=0.0, copied_out_s=0.0, copied_in_s=0.0)


def mixes(plan: StepPlan) -> bool:
    """Whether the plan prefills and decodes."""
    return {count > 1 for count in plan.row_tokens} == {True, False}


def launched_ahead(slots: Slots, driver: Driver, max_launches: int) -> list[executor_pb2.StepResult]:
    """Each plan is launched when no more have been collected than it was made with, or than `max_launches` wants."""
    launched: deque[Launched] = deque()
    results: list[StepResult] = []
    for plan, num_known in zip(driver.plans, driver.num_known, strict=True):
        while len(results) < num_known or len(launched) == max_launches:
            results.append(untimed(slots.collect(launched.popleft())))
        launched.append(slots.launch(slots.begin(plan)))
    results += [untimed(slots.collect(step)) for step in launched]
    return [result_to_proto(result) for result in results]


def undisturbed(engine: Engine, jobs: Sequence[Job], *, num_device_blocks: int, n: int = 1) -> Driver:
    """The jobs, as requests "0", "1" ..., one after the other with room enough: what disturbed runs must equal."""
    driver = Driver(engine, Room(num_device_blocks=num_device_blocks))
    for number, job in enumerate(jobs):
        driver.add(str(number), job, n=n)
        driver.run()
    return driver
