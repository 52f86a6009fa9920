"""Objects from rank to rank. The ranks of an engine are processes of one program and trust each other: they are pickled."""

import pickle
from typing import TypeVar

from jetway.runtime.errors import EngineFailed

from .ranks import Channel, Ranks

Message = TypeVar("Message")


def send(message: object, ranks: Ranks, to: int, channel: Channel) -> None:
    """Raises EngineFailed as `Ranks.send` does."""
    ranks.send(pickle.dumps(message, pickle.HIGHEST_PROTOCOL), to, channel)


def receive(ranks: Ranks, source: int, channel: Channel) -> object:
    """The next message. Raises EngineFailed as `Ranks.receive` does, and one that was sent in a message's place."""
    message: object = pickle.loads(ranks.receive(source, channel))
    if isinstance(message, EngineFailed):
        raise message
    return message


def gathered(ranks: Ranks, message: Message) -> list[Message]:
    """The messages of all ranks, by rank: each gives one, while it loads. Raises EngineFailed as the above do."""
    others = [rank for rank in range(ranks.size) if rank != ranks.rank]
    for rank in others:
        send(message, ranks, rank, Channel.LOADING)
    messages = [message] * ranks.size
    for rank in others:
        received = receive(ranks, rank, Channel.LOADING)
        assert isinstance(received, type(message))
        messages[rank] = received
    return messages
