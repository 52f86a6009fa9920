"""One request at the scheduler, as the gateway sees it."""

import asyncio
import math
import time
from collections.abc import Callable, Sequence

from jetway.runtime.errors import DeadlineExceeded, JetwayError
from jetway.runtime.wire import sampling_to_proto
from jetway.scheduler.request import Request
from jetway.v1 import common_pb2, scheduler_pb2

from .inbox import End, Inbox

PATIENCE_S = 1.0  # beyond a deadline: the scheduler ends what is late, unless it or its executor hangs or is gone


class Generation:
    """Puts what the scheduler says of its n sequences into the inbox, as choices from `first_choice` on.

    A sequence is open until it has ended or is told to finish; one that is finishing is heard once more, when it ends.
    Whoever reads the inbox no more calls `cancel`. Its tokens are kept, so that another scheduler can go on from them.
    Its deadline holds whether there is a scheduler or not.
    """

    def __init__(
        self,
        handle: int,
        request: Request,
        inbox: Inbox,
        first_choice: int,
        send: Callable[[scheduler_pb2.SessionRequest], None],
    ) -> None:
        self._handle = handle
        self._request = request
        self._inbox = inbox
        self._first_choice = first_choice
        self._send = send
        self.submitted_at = time.monotonic()
        self._accepted = False
        self._open: dict[int, list[int]] = {index: [] for index in range(request.n)}  # what each has generated
        self._finishing: set[int] = set()
        self._alarm: asyncio.TimerHandle | None = None
        if request.deadline_s is not None:
            self._alarm = asyncio.get_running_loop().call_later(request.deadline_s + PATIENCE_S, self._expire)

    @property
    def ended(self) -> bool:
        """Nothing more is heard of it."""
        return not self._open and not self._finishing

    def add(self) -> scheduler_pb2.SessionRequest:
        """What asks a scheduler for it; one after the first, for what is left of it."""
        request = self._request
        add = scheduler_pb2.Add(
            handle=self._handle,
            request_id=request.id,
            prompt=request.prompt,
            max_tokens=request.max_tokens,
            sampling=sampling_to_proto(request.sampling),
            n=request.n,
            service_class=request.service_class,
            tenant=request.tenant,
            priority=request.priority,
            deadline_ms=_milliseconds(request.deadline_s),
            queue_timeout_ms=_milliseconds(request.queue_timeout_s),
            age_ms=round(1000 * (time.monotonic() - self.submitted_at)),
        )
        if self._accepted:
            for index, tokens in self._open.items():
                add.generated.add(sequence_index=index, tokens=tokens)
        return scheduler_pb2.SessionRequest(add=add)

    def cancel(self) -> None:
        """End all that is open. Takes effect at once, so it needs no shield; later calls do nothing."""
        self.withdraw()
        self._open.clear()
        self._finishing.clear()
        if self._alarm is not None:
            self._alarm.cancel()

    def withdraw(self) -> None:
        """Let the scheduler, if it knows of what is open, end it."""
        if self._open:
            self._send(scheduler_pb2.SessionRequest(cancel=scheduler_pb2.Cancel(handle=self._handle)))

    def finish(self, choice: int, kept_tokens: int) -> None:
        """End one sequence as STOP with its first `kept_tokens`; only its end is heard after this."""
        sequence_index = choice - self._first_choice
        if self._open.pop(sequence_index, None) is not None:
            self._finishing.add(sequence_index)
            finish = scheduler_pb2.Finish(handle=self._handle, sequence_index=sequence_index, kept_tokens=kept_tokens)
            self._send(scheduler_pb2.SessionRequest(finish=finish))

    def accept(self) -> None:
        """Another scheduler accepts again what one had accepted."""
        if not self._accepted:
            self._accepted = True
            self._inbox.accept()

    def refuse(self, error: JetwayError) -> None:
        """No scheduler takes it, or one that was asked again does not."""
        self._give_up(common_pb2.FINISH_REASON_FAILED, error)

    def push(self, sequence_index: int, tokens: Sequence[int]) -> None:
        generated = self._open.get(sequence_index)
        if generated is not None:  # else it is overshoot: sampled before the scheduler knew of the end
            generated += tokens
            self._inbox.of(self._first_choice + sequence_index).tokens += tokens

    def push_logprobs(self, sequence_index: int, logprobs: common_pb2.TokenLogprobs) -> None:
        """Of the tokens pushed, in their order."""
        if sequence_index in self._open:
            self._inbox.of(self._first_choice + sequence_index).logprobs.append(logprobs)

    def end(self, sequence_index: int, end: End) -> None:
        if sequence_index in self._open or sequence_index in self._finishing:
            self._open.pop(sequence_index, None)
            self._finishing.discard(sequence_index)
            self._inbox.of(self._first_choice + sequence_index).end = end

    def settle(self) -> None:
        """The stream is lost: what was finishing is whole, and ends as it would have."""
        for sequence_index in list(self._finishing):
            self.end(sequence_index, End(common_pb2.FINISH_REASON_STOP, num_cached_tokens=None))

    def _expire(self) -> None:
        self.withdraw()
        error = DeadlineExceeded(f"the deadline passed after {time.monotonic() - self.submitted_at:.3g} s")
        self._give_up(common_pb2.FINISH_REASON_EXPIRED, error)

    def _give_up(self, reason: common_pb2.FinishReason.ValueType, error: JetwayError) -> None:
        """No scheduler will say more of it: what is open ends so."""
        self.settle()
        if not self._accepted:
            self._open.clear()
            self._inbox.refuse(error)
        for sequence_index in list(self._open):
            self.end(sequence_index, End(reason, error=error))


def _milliseconds(duration_s: float | None) -> int | None:
    return None if duration_s is None else math.ceil(1000 * duration_s)
