"""How the ranks of an engine speak to each other. A rank is one process of an engine of several, numbered from 0."""

from enum import IntEnum
from typing import Protocol


class Channel(IntEnum):
    """What a message is about. Messages of one channel do not wait for those of another."""

    PLANS = 1  # from rank 0 to all others
    HIDDEN_STATES = 2  # from stage to stage
    SAMPLED = 3  # from the last stage to the others
    LOADING = 4  # from every rank to every other, before the first plan


class Ranks(Protocol):
    """One rank's ties to the others. Any thread may call; of one channel, one thread sends and one receives."""

    @property
    def rank(self) -> int:
        """This rank's number, from 0."""
        ...

    @property
    def size(self) -> int:
        """How many ranks there are, this one included."""
        ...

    def send(self, message: bytes, to: int, channel: Channel) -> None:
        """Never waits for the receiver. Raises EngineFailed when the message cannot be sent."""
        ...

    def receive(self, source: int, channel: Channel) -> bytes:
        """Wait for the next message, in the order in which `source` sent them on `channel`.

        Raises EngineFailed when there will be none: the others are gone.
        """
        ...
