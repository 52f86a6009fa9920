"""Objects from rank to rank. The ranks of an engine are processes of one program and trust each other: they are pickled."""

import pickle

from jetway.runtime.errors import EngineFailed

from .ranks import Channel, Ranks


def send(message: object, ranks: Ranks, to: int, channel: Channel) -> None:
    """Raises EngineFailed as `Ranks.send` does."""
    ranks.send(pickle.dumps(message, pickle.HIGHEST_PROTOCOL), to, channel)


def receive(ranks: Ranks, source: int, channel: Channel) -> object:
    """The next message. Raises EngineFailed as `Ranks.receive` does, and one that was sent in a message's place."""
    message: object = pickle.loads(ranks.receive(source, channel))
    if isinstance(message, EngineFailed):
        raise message
    return message
