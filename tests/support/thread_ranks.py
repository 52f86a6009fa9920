"""Ranks that are threads of one process."""

from collections import defaultdict, deque
from threading import Condition

from jetway.runtime.errors import EngineFailed
from jetway.runtime.executor.ranks import Channel


class Meeting:
    """Where the messages of `size` ranks lie until they are received."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._messages = defaultdict[tuple[int, int, Channel], deque[bytes]](deque)
        self._changed = Condition()
        self._is_over = False

    def ranks(self) -> "list[ThreadRanks]":
        return [ThreadRanks(self, rank) for rank in range(self.size)]

    def end(self) -> None:
        """As mpirun does when a rank is lost: the others go too."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def put(self, message: bytes, way: tuple[int, int, Channel]) -> None:
        with self._changed:
            self._messages[way].append(message)
            self._changed.notify_all()

    def take(self, way: tuple[int, int, Channel]) -> bytes:
        with self._changed:
            self._changed.wait_for(lambda: self._messages[way] or self._is_over)
            if self._is_over:
                raise EngineFailed("the other ranks are gone")
            return self._messages[way].popleft()


class ThreadRanks:
    """See Ranks."""

    def __init__(self, meeting: Meeting, rank: int) -> None:
        self._meeting = meeting
        self.rank = rank
        self.size = meeting.size

    def send(self, message: bytes, to: int, channel: Channel) -> None:
        self._meeting.put(message, (self.rank, to, channel))

    def receive(self, source: int, channel: Channel) -> bytes:
        return self._meeting.take((source, self.rank, channel))
