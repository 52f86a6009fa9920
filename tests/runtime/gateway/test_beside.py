"""Which work keeps the event loop, and which leaves it its turns."""

import threading

import pytest

from jetway.runtime.errors import InvalidArgument
from jetway.runtime.gateway.beside import beside_the_loop


async def test_large_input_is_dealt_with_in_another_thread() -> None:
    here = threading.get_ident()
    assert await beside_the_loop(threading.get_ident, 1 << 16) == here
    assert await beside_the_loop(threading.get_ident, (1 << 16) + 1) != here


@pytest.mark.parametrize("size", [0, 1 << 20])
async def test_errors_are_raised(size: int) -> None:
    def refuse() -> None:
        raise InvalidArgument("no")

    with pytest.raises(InvalidArgument, match="no"):
        await beside_the_loop(refuse, size)
