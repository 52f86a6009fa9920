"""One Run call: a thread of ours reads and begins plans, another completes them, gRPC's own sends results.

What can be done while the device computes is done then: the next plan is read, decoded and made into arrays, or given to
the device already; the last result is encoded.
"""

import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from queue import SimpleQueue

import grpc

from jetway.runtime.decoding import MalformedMessage
from jetway.runtime.errors import EngineFailed
from jetway.scheduler.plan import StepPlan, StepResult
from jetway.v1 import executor_pb2

from .counts import PlanError
from .steps import Launched, Step
from .wire import plan_from_proto, result_to_proto
from .work import Work

MAX_UNSENT_RESULTS = 16  # a scheduler is a few plans ahead; one that sends and never reads is cut off

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class End:
    """How a session ended."""

    code: grpc.StatusCode
    details: str = ""


class SessionEnded(Exception):
    """No plan comes any more."""


class Session:
    """Results go out in order; after the first End nothing does."""

    def __init__(self, epoch: int, work: Work) -> None:
        self.epoch = epoch
        self._work = work
        self._room = threading.Semaphore(work.num_ahead)
        self._begun: SimpleQueue[Step | Launched | Exception] = SimpleQueue()
        self._results: SimpleQueue[StepResult | End] = SimpleQueue()
        self._is_over = False  # no step is launched any more
        self._queueing = threading.Lock()  # held while one is launched ahead, and queued

    def run(self, messages: Iterator[executor_pb2.StepPlan]) -> None:
        """Begin to read `messages`, and to do the work of each, in order, until that or they are over."""
        threading.Thread(target=self._do, args=(messages,), name="steps", daemon=True).start()

    def end(self, end: End) -> None:
        self._results.put(end)

    def fence(self, end: End) -> None:
        """End it at once: what is not on the device yet, or on its way, does not go there."""
        self._is_over = True
        self.end(end)
        self._begun.put(SessionEnded())

    def results(self) -> Iterator[executor_pb2.StepResult | End]:
        """What is to be sent; an End is the last."""
        while not isinstance(item := self._results.get(), End):
            yield result_to_proto(item)
        yield item

    def _do(self, messages: Iterator[executor_pb2.StepPlan]) -> None:
        """All of the session, once the device is left by the one before it."""
        with self._work.turn:
            threading.Thread(target=self._begin, args=(messages,), name="plans", daemon=True).start()
            self.end(self._complete())
            with self._queueing:  # what was launched under it can be found
                self._is_over = True
            self._room.release()  # whoever reads sees it
            while not self._begun.empty():
                if not isinstance(step := self._begun.get(), Exception):
                    self._work.abandon(step)

    def _begin(self, messages: Iterator[executor_pb2.StepPlan]) -> None:
        """What goes wrong here counts once the plans before it are complete."""
        try:
            for message in messages:
                step = self._work.begin(_decode(message))
                self._room.acquire()
                with self._queueing:
                    if self._is_over:
                        return
                    self._begun.put(self._work.launch_ahead(step))
            self._begun.put(SessionEnded())
        except Exception as error:  # noqa: BLE001  # raised again by whoever completes steps
            self._begun.put(error)

    def _complete(self) -> End:
        """Steps, until that is over; how it ended."""
        try:
            while True:
                self._results.put(self._work.complete(self._next()))
                self._room.release()
        except SessionEnded:
            return End(grpc.StatusCode.OK)
        except TooFarBehind as error:
            return End(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        except (PlanError, MalformedMessage) as error:
            return End(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except EngineFailed as error:
            return End(grpc.StatusCode.INTERNAL, error.message)
        except grpc.RpcError:  # the client is gone, or the call has ended
            return End(grpc.StatusCode.CANCELLED)
        except Exception as error:
            log.exception("a fault of ours ends the session of epoch %d", self.epoch)
            return End(grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}")

    def _next(self) -> Step | Launched:
        step = self._begun.get()
        if isinstance(step, Exception):
            raise step
        if self._is_over:  # it is fenced
            self._work.abandon(step)
            raise SessionEnded
        if self._results.qsize() >= MAX_UNSENT_RESULTS:
            self._work.abandon(step)
            raise TooFarBehind(f"{MAX_UNSENT_RESULTS} results wait to be read")
        return step


class TooFarBehind(Exception):
    """The scheduler sends plans and does not read their results."""


def _decode(message: executor_pb2.StepPlan) -> StepPlan:
    try:
        return plan_from_proto(message)
    except ValueError as error:
        raise PlanError(str(error)) from error
