"""grpc.health.v1 that follows step progress: a socket that answers proves nothing about the device behind it."""

import threading
import time
from collections.abc import Callable

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_health.v1.health_pb2 import HealthCheckResponse

from jetway.runtime.lifeline import BEATS_PER_TIMEOUT

SERVICES = ("", "jetway.v1.Executor")  # both names mean the executor; "" is what most clients ask for


class StepHealth:
    """SERVING, but NOT_SERVING while a step has been running for longer than `step_limit_s`.

    Looks from a thread of its own, from `start` to `stop`. At each look it calls `beat`, unless the step of the last look
    is still running: whoever listens hears nothing for as long as a step takes.
    """

    def __init__(self, step_limit_s: float, beat: Callable[[], None]) -> None:
        self._step_limit_s = step_limit_s
        self._beat = beat
        self._servicer = health.HealthServicer()
        self._publish(stuck=False)
        self._counting = threading.Lock()
        self._num_steps = 0  # on the device
        self._step_since: float | None = None  # the oldest of them
        self._seen_since: float | None = None  # at the last look
        self._was_stuck = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="step-health", daemon=True)

    def start(self, server: grpc.Server) -> None:
        """Answer health checks on `server`, which has not started yet."""
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)
        self._thread.start()

    def stop(self) -> None:
        """NOT_SERVING from now on."""
        self._stopping.set()
        self._thread.join()
        self._servicer.enter_graceful_shutdown()

    def step_launched(self) -> None:
        """A step is on the device."""
        with self._counting:
            self._num_steps += 1
            if self._num_steps == 1:
                self._step_since = time.monotonic()

    def step_done(self) -> None:
        """The oldest step is done, and the next has the device. One that fails never is: nothing comes after it."""
        with self._counting:
            self._num_steps -= 1
            self._step_since = time.monotonic() if self._num_steps else None

    def look(self) -> None:
        """Beat unless the step of the last look is still running, and say whether one is stuck."""
        since = self._step_since
        if since is None or since != self._seen_since:
            self._beat()
        self._seen_since = since
        stuck = since is not None and time.monotonic() - since > self._step_limit_s
        if stuck != self._was_stuck:
            self._publish(stuck=stuck)
        self._was_stuck = stuck

    def _watch(self) -> None:
        while not self._stopping.wait(self._step_limit_s / BEATS_PER_TIMEOUT):
            self.look()

    def _publish(self, *, stuck: bool) -> None:
        for service in SERVICES:
            self._servicer.set(service, HealthCheckResponse.NOT_SERVING if stuck else HealthCheckResponse.SERVING)
