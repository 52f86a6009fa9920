"""An engine of several ranks in one process: rank 0 in the test's hands, a thread for each of the others."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from jetway.runtime.errors import EngineFailed
from jetway.runtime.executor.base import Engine
from jetway.runtime.executor.follower import follow
from jetway.runtime.executor.leader import Leader
from jetway.runtime.executor.steps import Slots
from tests.support.thread_ranks import Meeting, ThreadRanks


@dataclass(slots=True)
class Ranked:
    """`engine` is rank 0's part. `failures` are what the others ended by, once they have ended."""

    engine: Engine
    leader: Leader
    meeting: Meeting
    failures: list[EngineFailed] = field(default_factory=list)
    threads: list[threading.Thread] = field(default_factory=list)

    def slots(self) -> Slots:
        """Of a new session."""
        return Slots(self.engine, self.leader.new_session())

    def join(self) -> None:
        """Until all others have ended."""
        for thread in self.threads:
            thread.join()

    def follow(self, engine: Engine, ranks: ThreadRanks) -> None:
        try:
            follow(engine, ranks)
        except EngineFailed as failure:
            self.failures.append(failure)
            self.meeting.end()


@contextmanager
def ranked(meeting: Meeting, engines: Sequence[Engine]) -> Iterator[Ranked]:
    """`engines` by rank. The end is rank 0's."""
    first, *others = meeting.ranks()
    group = Ranked(engines[0], Leader(first), meeting)
    for engine, ranks in zip(engines[1:], others, strict=True):
        group.threads.append(threading.Thread(target=group.follow, args=(engine, ranks)))
    for thread in group.threads:
        thread.start()
    try:
        yield group
    finally:
        group.leader.end()
        group.join()
        meeting.end()
