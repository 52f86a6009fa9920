"""One request at the scheduler, as the gateway sees it."""

from collections.abc import Callable

from jetway.runtime.errors import JetwayError
from jetway.v1 import common_pb2, scheduler_pb2

from .inbox import End, Inbox


class Generation:
    """Puts what the scheduler says of its n sequences into the inbox, as choices from `first_choice` on.

    A sequence is open until it has ended or is told to finish; one that is finishing is heard once more, when it ends.
    Whoever reads the inbox no more calls `cancel`.
    """

    def __init__(
        self, handle: int, n: int, inbox: Inbox, first_choice: int, send: Callable[[scheduler_pb2.SessionRequest], None]
    ) -> None:
        self._handle = handle
        self._inbox = inbox
        self._first_choice = first_choice
        self._send = send
        self._accepted = False
        self._open = set(range(n))
        self._finishing: set[int] = set()

    @property
    def ended(self) -> bool:
        """Nothing more is heard of it."""
        return not self._open and not self._finishing

    def cancel(self) -> None:
        """End all that is open. Takes effect at once, so it needs no shield; later calls do nothing."""
        if self._open:
            self._send(scheduler_pb2.SessionRequest(cancel=scheduler_pb2.Cancel(handle=self._handle)))
        self._open.clear()
        self._finishing.clear()

    def finish(self, choice: int, kept_tokens: int) -> None:
        """End one sequence as STOP with its first `kept_tokens`; only its end is heard after this."""
        sequence_index = choice - self._first_choice
        if sequence_index in self._open:
            self._open.remove(sequence_index)
            self._finishing.add(sequence_index)
            finish = scheduler_pb2.Finish(handle=self._handle, sequence_index=sequence_index, kept_tokens=kept_tokens)
            self._send(scheduler_pb2.SessionRequest(finish=finish))

    def accept(self) -> None:
        self._accepted = True
        self._inbox.accept()

    def refuse(self, error: JetwayError) -> None:
        self._open.clear()
        self._inbox.refuse(error)

    def push(self, sequence_index: int, token: int) -> None:
        if sequence_index in self._open:  # else it is overshoot: sampled before the scheduler knew of the end
            self._inbox.of(self._first_choice + sequence_index).tokens.append(token)

    def push_logprobs(self, sequence_index: int, logprobs: common_pb2.TokenLogprobs) -> None:
        """Of the tokens pushed, in their order."""
        if sequence_index in self._open:
            self._inbox.of(self._first_choice + sequence_index).logprobs.append(logprobs)

    def end(self, sequence_index: int, end: End) -> None:
        if sequence_index in self._open or sequence_index in self._finishing:
            self._open.discard(sequence_index)
            self._finishing.discard(sequence_index)
            self._inbox.of(self._first_choice + sequence_index).end = end

    def lose(self, error: JetwayError) -> None:
        """End all of it, without telling the scheduler. What was finishing is whole and ends as it would have."""
        if not self._accepted:
            self.refuse(error)
        for sequence_index in list(self._open):
            self.end(sequence_index, End(common_pb2.FINISH_REASON_FAILED, error=error))
        for sequence_index in list(self._finishing):
            self.end(sequence_index, End(common_pb2.FINISH_REASON_STOP))
