"""The engine in the hands of one session at a time, and what a session does with it."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from jetway.runtime.errors import EngineFailed
from jetway.scheduler.plan import StepPlan, StepResult

from .base import Engine
from .health import StepHealth
from .leader import Followers, NoFollowers
from .steps import Launched, Slots, Step

NUM_AHEAD = 2  # where the engine does one step at a time: one on the device, one made into arrays meanwhile

log = logging.getLogger(__name__)


class Device:
    """An engine, until a step fails on it: its state is then unknown, and no other is done. `failed` hears of that."""

    def __init__(
        self,
        engine: Engine,
        health: StepHealth,
        failed: Callable[[EngineFailed], None],
        new_followers: Callable[[], Followers] = NoFollowers,
    ) -> None:
        self.engine = engine
        self.health = health
        self.new_followers = new_followers  # of each session
        self.turn = threading.Lock()  # held by the session whose steps are on it
        self._failed = failed
        self._failure: EngineFailed | None = None

    @contextmanager
    def at(self, step: Step) -> Iterator[None]:
        """Around what may fail of a step. Raises EngineFailed."""
        if self._failure is not None:
            raise self._failure
        try:
            yield
        except EngineFailed as error:
            self._fail(error)
        except Exception as error:
            log.exception("a fault of ours in step %d", step.plan.step)
            self._fail(EngineFailed(f"a fault of ours in a step: {type(error).__name__}: {error}"))

    def _fail(self, failure: EngineFailed) -> None:
        self._failure = failure
        self._failed(failure)
        raise failure


class Work:
    """One session's plans on a device.

    `num_ahead` may be on the device or wait for it, and one more may have begun: others stay with gRPC, whose flow control
    slows the scheduler.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._slots = Slots(device.engine, device.new_followers())
        self._launches_ahead = device.engine.max_launches > 1
        self.turn = device.turn  # to be held while work is done
        self.num_ahead = device.engine.max_launches if self._launches_ahead else NUM_AHEAD

    def begin(self, plan: StepPlan) -> Step:
        """Raises PlanError for an illegal plan."""
        return self._slots.begin(plan)

    def launch_ahead(self, step: Step) -> Step | Launched:
        """Give it to an engine that takes it before the steps before it are complete. Raises EngineFailed."""
        return self._launch(step) if self._launches_ahead else step

    def complete(self, step: Step | Launched) -> StepResult:
        """Raises EngineFailed."""
        launched = step if isinstance(step, Launched) else self._launch(step)
        with self._device.at(launched.step):
            result = self._slots.collect(launched)
        self._device.health.step_done()
        return result

    def abandon(self, step: Step | Launched) -> None:
        """Nobody asks for its result: return when nothing of it is on the device."""
        if isinstance(step, Launched):
            with suppress(EngineFailed):
                self.complete(step)

    def _launch(self, step: Step) -> Launched:
        self._device.health.step_launched()
        with self._device.at(step):
            return self._slots.launch(step)
