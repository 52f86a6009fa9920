"""How a listening socket goes without a client that notices."""

import asyncio
import ctypes
import os
import socket
import struct
from contextlib import suppress

_HANDSHAKE_S = 0.5  # what those who have begun to connect get; less than the second after which the others try again
_SO_ATTACH_FILTER = 26  # asm-generic/socket.h
# linux/filter.h: (code, jump if true, jump if false, operand); offsets are into the TCP header.
_DROP_SYN = (
    (0x30, 0, 0, 13),  # load the byte of flags
    (0x45, 0, 1, 0x02),  # SYN?
    (0x06, 0, 0, 0),  # then drop the packet
    (0x06, 0, 0, 0xFFFFFFFF),  # else take all of it
)


async def turn_away(*listeners: socket.socket) -> None:
    """Returns when nobody connects here any more; who had begun to has been accepted or waits for it: nothing is reset.

    To the others it is as if a packet was lost. They knock again after a second, and may then be heard by another. Where
    the kernel knows no filters, this does nothing.
    """
    program = b"".join(struct.pack("HBBI", *instruction) for instruction in _DROP_SYN)
    kept = ctypes.create_string_buffer(program)
    pointer = struct.pack("HP", len(_DROP_SYN), ctypes.addressof(kept))
    for listener in listeners:
        with suppress(OSError):
            listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, pointer)
    if any(map(_listens, listeners)):
        await asyncio.sleep(_HANDSHAKE_S)


async def leave(port: int) -> None:
    """Let no socket of this process, of whatever library, listen on the TCP port any more. Connections stay."""
    fds = [fd for fd in map(int, os.listdir("/proc/self/fd")) if _listens_on(fd, port)]
    listeners = [socket.socket(fileno=os.dup(fd)) for fd in fds]
    try:
        await turn_away(*listeners)
    finally:
        for listener in listeners:
            listener.shutdown(socket.SHUT_RD)
            listener.close()


def _listens_on(fd: int, port: int) -> bool:
    try:
        found = socket.socket(fileno=fd)
    except OSError:  # no socket, or gone meanwhile
        return False
    try:
        is_tcp = found.family in (socket.AF_INET, socket.AF_INET6)
        return is_tcp and _listens(found) and found.getsockname()[1] == port
    finally:
        found.detach()


def _listens(found: socket.socket) -> bool:
    return bool(found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
