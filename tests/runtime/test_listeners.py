"""A listening socket that goes, and clients that do not notice."""

import errno
import socket

import pytest

from jetway.runtime.listeners import leave, turn_away


def connecting(port: int) -> socket.socket:
    """A connection that is being made."""
    client = socket.socket()
    client.setblocking(False)
    assert client.connect_ex(("127.0.0.1", port)) == errno.EINPROGRESS
    return client


async def test_who_had_connected_is_still_accepted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, connecting(listener.getsockname()[1]) as early:
        await turn_away(listener)
        with connecting(listener.getsockname()[1]) as late:
            accepted, address = listener.accept()
            accepted.close()
            assert address == early.getsockname()
            listener.setblocking(False)
            with pytest.raises(BlockingIOError):
                listener.accept()
            with pytest.raises(OSError, match="not connected"):
                late.getpeername()


async def test_connections_stay_and_other_ports_too() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as left,
        socket.create_server(("127.0.0.1", 0)) as other,
        socket.create_connection(left.getsockname()) as client,
    ):
        accepted, _ = left.accept()
        with accepted:
            await leave(left.getsockname()[1])
            accepted.sendall(b"hello")
            assert client.recv(5) == b"hello"
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(left.getsockname())
        socket.create_connection(other.getsockname()).close()
