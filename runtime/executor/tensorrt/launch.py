"""A step on the device, from its launch until what it sampled is known."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

from jetway.runtime.executor.base import Sampled, SamplingState
from jetway.runtime.executor.trt_bindings import BoundStep

from .device import Event, device_errors
from .runner import StepRunner
from .sampling import Choice


@dataclass(frozen=True, slots=True)
class CopyWait:
    """Where a step began to wait for copies, and where it had waited."""

    asked: Event
    begun: Event

    @property
    def seconds(self) -> float:
        return self.asked.seconds_until(self.begun)


class StepLaunch:
    """A Launch that has been computed, as far as the host is concerned, and is to be sampled once."""

    def __init__(
        self,
        runner: StepRunner,
        step: BoundStep,
        states: Sequence[SamplingState],
        copy_wait: CopyWait,
        calls: threading.Lock,
    ) -> None:
        """`calls` is held by whoever asks the runner for something."""
        self._runner = runner
        self._step = step
        self._states = states
        self._copy_wait = copy_wait
        self._calls = calls
        self._choice: Choice | None = None
        self._done: Event | None = None

    def sample(self) -> None:
        """Ask for the samples, unless that has been done. Tokens that the states lack must have been appended by now.

        `calls` is held.
        """
        if self._done is None:
            self._choice = self._runner.sample(self._step, self._states)
            self._done = self._runner.contexts.compute.record()

    def wait(self) -> Sampled:
        with device_errors("the step"):
            if self._done is None:  # else it would wait for who samples a later step
                with self._calls:
                    self.sample()
            assert self._done is not None
            self._done.synchronize()
            sampled = Sampled((), {}, {}) if self._choice is None else self._choice.report()
            return replace(sampled, copy_wait_s=self._copy_wait.seconds)
