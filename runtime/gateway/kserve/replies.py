"""The replies to one request: its answer's deltas, gathered until there is something to say, as tensors."""

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jetway.runtime.gateway.answer import Answer, Delta, Ending
from jetway.runtime.gateway.transcript import Piece
from jetway.v1 import common_pb2

from .dialects.base import Writer
from .running import Stoppable, Stopped
from .tensor import Tensor

_CANCELLED = Ending(common_pb2.FINISH_REASON_CANCELLED)


class Reply(NamedTuple):
    """One response. The last is `final`; it may be without outputs."""

    outputs: Sequence[Tensor] = ()
    final: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyOptions:
    """`stream`: as the answer is generated. `empty_final`: nothing but the end in the last reply. `wanted` names outputs;
    empty: all.
    """

    stream: bool
    empty_final: bool
    wanted: frozenset[str]


class Replies:
    """Iterates over the replies; a choice that is stopped ends with what it has."""

    def __init__(self, answer: Answer, writer: Writer, options: ReplyOptions, stoppable: Stoppable) -> None:
        self._answer = answer
        self._writer = writer
        self._options = options
        self._stoppable = stoppable
        self._open = set(range(answer.num_choices))
        self._pieces: dict[int, list[Piece]] = defaultdict(list)  # of each choice, not yet said
        self._ready: deque[Reply] = deque()
        self._ended = False

    def __aiter__(self) -> "Replies":
        return self

    async def __anext__(self) -> Reply:
        """Raises the error that a choice ended with."""
        while not self._ready:
            if not self._open:
                raise StopAsyncIteration
            await self._gather()
        return self._ready.popleft()

    async def _gather(self) -> None:
        try:
            delta = await self._stoppable.wait(anext(self._answer))
        except Stopped:
            self._answer.cancel()
            for choice in sorted(self._open):
                self._say(choice, _CANCELLED)
            return
        if delta.ending is not None and delta.ending.error is not None:
            raise delta.ending.error
        self._pieces[delta.choice].append(delta.piece)
        if delta.ending is not None or (self._options.stream and self._writer.says(self._gathered(delta.choice))):
            self._say(delta.choice, delta.ending)

    def _gathered(self, choice: int, ending: Ending | None = None) -> Delta:
        pieces = self._pieces[choice]
        piece = pieces[0] if len(pieces) == 1 else _joined(pieces)
        return Delta(choice, piece, ending)

    def _say(self, choice: int, ending: Ending | None) -> None:
        """What the choice has gained; with the ending of the last one also that all is said."""
        delta = self._gathered(choice, ending)
        del self._pieces[choice]
        if ending is not None:
            self._open.remove(choice)
        last = not self._open
        empty_final = last and self._options.empty_final
        if not (empty_final and self._options.stream) or self._writer.says(delta):
            wanted = self._options.wanted
            outputs = [each for each in self._writer.outputs(delta) if not wanted or each.name in wanted]
            self._ready.append(Reply(outputs, final=last and not empty_final))
        if empty_final:
            self._ready.append(Reply())


def _joined(pieces: Sequence[Piece]) -> Piece:
    return Piece(
        "".join(piece.text for piece in pieces),
        [token for piece in pieces for token in piece.token_ids],
        [scored for piece in pieces for scored in piece.scored],
    )
