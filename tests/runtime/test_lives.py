"""A role's lives, over a launcher that waits for its cue."""

import asyncio
from pathlib import Path
from unittest.mock import AsyncMock, Mock

import pytest

from jetway.runtime.child import Child
from jetway.runtime.config import ServeConfig
from jetway.runtime.errors import Unavailable
from jetway.runtime.launcher import Launcher, Life
from jetway.runtime.lives import Lives


async def test_a_stop_while_a_life_begins_leaves_none(tmp_path: Path) -> None:
    """The process is there only after `stop` has found nothing to end."""
    cue = asyncio.Event()
    child = Mock(spec=Child, role="gateway", pid=1)
    launcher = Mock(spec=Launcher)

    async def launch(role: str) -> Life:
        await cue.wait()
        return Life(child, 1, tmp_path)

    launcher.launch = AsyncMock(side_effect=launch)
    lives = Lives("gateway", launcher, ServeConfig(engine=tmp_path), Mock())
    starting = asyncio.create_task(lives.start())
    await asyncio.sleep(0)
    assert await lives.stop(1.0) is None

    cue.set()
    with pytest.raises(Unavailable, match="the gateway is to stop"):
        await starting

    assert child.kill.await_count == 1
    assert child.ready.await_count == 0
