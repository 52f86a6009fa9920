"""The accepted requests that still live, and everything that is said of them."""

from collections.abc import Iterator
from collections.abc import Sequence as Items

from .events import Event, FinishReason, RequestFinished, SequenceFinished, TokenSampled
from .plan import TokenLogprobs
from .request import SequenceId
from .sequence import Sequence


class Ledger:
    """Every accepted request gets one terminal event, every sequence one finish; both are written here only."""

    def __init__(self) -> None:
        self._live: dict[str, list[Sequence]] = {}
        self._events: list[Event] = []

    def open(self, request_id: str, sequences: list[Sequence]) -> None:
        assert request_id not in self._live, f"request {request_id} is live already"
        self._live[request_id] = sequences

    def of_request(self, request_id: str) -> Items[Sequence]:
        """The request's live sequences; none when it has ended."""
        return tuple(self._live.get(request_id, ()))

    def find(self, sequence_id: SequenceId) -> Sequence | None:
        for sequence in self._live.get(sequence_id.request_id, ()):
            if sequence.id == sequence_id:
                return sequence
        return None

    def __iter__(self) -> Iterator[Sequence]:
        """Every live sequence."""
        return (sequence for sequences in self._live.values() for sequence in sequences)

    def token(self, sequence: Sequence, token: int, logprobs: TokenLogprobs | None) -> None:
        self._events.append(TokenSampled(sequence.id, token, logprobs))

    def close(self, sequence: Sequence, reason: FinishReason, message: str) -> None:
        """The sequence has ended; with the last of them, the request."""
        self._events.append(
            SequenceFinished(
                sequence.id, reason, sequence.num_output, sequence.num_cached_tokens, message, sequence.queued_s
            )
        )
        request_id = sequence.id.request_id
        siblings = self._live[request_id]
        siblings.remove(sequence)
        if not siblings:
            del self._live[request_id]
            self._events.append(RequestFinished(request_id))

    def take_events(self) -> list[Event]:
        events, self._events = self._events, []
        return events
