"""One Run call: a thread of ours reads and begins plans, another completes them, gRPC's own sends results.

What can be done while the device computes is done then: the next plan is read, decoded and made into arrays, the last
result is encoded.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import SimpleQueue

import grpc

from jetway.runtime.decoding import MalformedMessage
from jetway.runtime.errors import EngineFailed
from jetway.scheduler.plan import StepPlan, StepResult
from jetway.v1 import executor_pb2

from .counts import PlanError
from .steps import Step
from .wire import plan_from_proto, result_to_proto

MAX_PLANS_AHEAD = 2  # begun and not yet taken; more stay with gRPC, whose flow control slows the scheduler
MAX_UNSENT_RESULTS = 16  # a scheduler is at most one plan ahead; one that sends and never reads is cut off

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

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self._begun: SimpleQueue[Step | Exception] = SimpleQueue()
        self._room = threading.Semaphore(MAX_PLANS_AHEAD)
        self._is_over = False  # nobody completes any more
        self._results: SimpleQueue[StepResult | End] = SimpleQueue()

    def run(
        self,
        messages: Iterator[executor_pb2.StepPlan],
        begin: Callable[[StepPlan], Step],
        complete: Callable[[Step], StepResult],
    ) -> None:
        """Begin to read `messages`, and to `begin` and `complete` each, in order, until that or they are over."""
        threading.Thread(target=self._begin, args=(messages, begin), name="plans", daemon=True).start()
        threading.Thread(target=self._complete, args=(complete,), name="steps", daemon=True).start()

    def end(self, end: End) -> None:
        self._results.put(end)

    def results(self) -> Iterator[executor_pb2.StepResult | End]:
        """What is to be sent; an End is the last."""
        while not isinstance(item := self._results.get(), End):
            yield result_to_proto(item)
        yield item

    def _begin(self, messages: Iterator[executor_pb2.StepPlan], begin: Callable[[StepPlan], Step]) -> None:
        """What goes wrong here counts once the plans before it are complete."""
        try:
            for message in messages:
                self._begun.put(begin(_decode(message)))
                self._room.acquire()
                if self._is_over:
                    return
            self._begun.put(SessionEnded())
        except Exception as error:  # noqa: BLE001  # raised again by whoever completes steps
            self._begun.put(error)

    def _complete(self, complete: Callable[[Step], StepResult]) -> None:
        """To the end of the session, whatever that is."""
        try:
            while True:
                self._results.put(complete(self._next()))
        except SessionEnded:
            end = End(grpc.StatusCode.OK)
        except TooFarBehind as error:
            end = End(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        except (PlanError, MalformedMessage) as error:
            end = End(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except EngineFailed as error:
            end = End(grpc.StatusCode.INTERNAL, error.message)
        except grpc.RpcError:  # the client is gone, or the call has ended
            end = End(grpc.StatusCode.CANCELLED)
        except Exception as error:
            log.exception("a fault of ours ends the session of epoch %d", self.epoch)
            end = End(grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}")
        self.end(end)
        self._is_over = True
        self._room.release()  # whoever reads sees it

    def _next(self) -> Step:
        step = self._begun.get()
        if isinstance(step, Exception):
            raise step
        self._room.release()
        if self._results.qsize() >= MAX_UNSENT_RESULTS:
            raise TooFarBehind(f"{MAX_UNSENT_RESULTS} results wait to be read")
        return step


class TooFarBehind(Exception):
    """The scheduler sends plans and does not read their results."""


def _decode(message: executor_pb2.StepPlan) -> StepPlan:
    try:
        return plan_from_proto(message)
    except ValueError as error:
        raise PlanError(str(error)) from error
