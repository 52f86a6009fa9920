import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest

from jetway.runtime.child import Child, Command, Listener
from jetway.runtime.errors import ConfigError, Unavailable
from tests.support.processes import is_alive

Start = Callable[[str], Awaitable[Child]]


@pytest.fixture
def lines() -> list[str]:
    """What the children logged."""
    return []


@pytest.fixture
def drain() -> Mock:
    """Called when a child asks for it."""
    return Mock()


@pytest.fixture
async def start(lines: list[str], drain: Mock, tmp_path: Path) -> AsyncIterator[Start]:
    """Runs a Python program as the gateway, with a `lifeline` as a socket; it is killed at the end."""
    children: list[Child] = []

    async def run(program: str) -> Child:
        command = Command("gateway", [sys.executable, "-c", TIED + program], [], tmp_path / f"{len(children)}.sock")
        children.append(await Child.start(command, Listener(lines.append, drain)))
        return children[-1]

    yield run
    for child in children:
        await child.kill()


TIED = """
import os, signal, socket, sys, time
lifeline = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
lifeline.connect(sys.argv[-1])
"""
READY = """lifeline.send(b'{"ready": {"port": "1"}}')\n"""


async def test_ready_returns_what_was_announced(start: Start) -> None:
    child = await start(READY + "time.sleep(60)")
    assert await child.ready() == {"port": "1"}


async def test_beats_before_ready_are_passed_over(start: Start) -> None:
    child = await start("""lifeline.send(b'{"beat": null}')\n""" * 2 + READY + "time.sleep(60)")
    assert await child.ready() == {"port": "1"}


async def test_a_child_may_ask_for_a_drain(start: Start, drain: Mock) -> None:
    child = await start(READY + """lifeline.send(b'{"drain": null}'); sys.exit(0)""")
    await child.ended()
    assert drain.call_count == 1


async def test_silence_is_the_end(start: Start) -> None:
    child = await start(READY + "time.sleep(60)")
    await child.ready()
    await child.kill_when_silent(0.04)
    assert await child.ended() == "the gateway made no progress for 0.04 s and was killed; it last said: nothing"


async def test_a_supervisor_that_stood_still_takes_nobody_for_dead(start: Start) -> None:
    """When it goes on, its timers are due and the beats of the meantime are unread."""
    child = await start(READY + """while True: lifeline.send(b'{"beat": null}'); time.sleep(0.005)""")
    await child.ready()
    watching = asyncio.create_task(child.kill_when_silent(0.4))
    await asyncio.sleep(0)
    for _ in range(50):
        time.sleep(0.01)  # noqa: ASYNC251  # the loop stands still
    await asyncio.sleep(0.01)
    assert is_alive(child.pids[0])
    assert not watching.done()
    watching.cancel()


async def test_a_refusal_is_a_config_error(start: Start) -> None:
    child = await start("""lifeline.send(b'{"refused": "port 80 is taken"}')""")
    with pytest.raises(ConfigError, match="^gateway: port 80 is taken$"):
        await child.ready()


async def test_an_end_before_ready_names_status_and_last_lines(start: Start, lines: list[str]) -> None:
    child = await start("print('first', flush=True); sys.stderr.write('no newline'); sys.exit(4)")
    with pytest.raises(Unavailable) as raised:
        await child.ready()
    assert raised.value.message == "the gateway exited with status 4; it last said:\n    first\n    no newline"
    assert lines == ["first", "no newline"]


async def test_only_the_last_lines_are_kept(start: Start, lines: list[str]) -> None:
    child = await start("for i in range(100): print('x' * 100_000, i)\nos.kill(os.getpid(), signal.SIGABRT)")
    end = await child.ended()
    assert "was killed by SIGABRT" in end
    assert len(end.splitlines()) == 1 + 20
    assert len(lines) == 100
    assert lines[-1] == f"{'x' * 100_000} 99"


async def test_stop_is_clean_when_the_process_ends(start: Start) -> None:
    child = await start(READY + "time.sleep(60)")
    await child.ready()
    assert await child.stop(bound_s=10) is None


async def test_stop_reports_a_status(start: Start) -> None:
    child = await start("signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n" + READY + "time.sleep(60)")
    await child.ready()
    assert await child.stop(bound_s=10) == "the gateway exited with status 5"


async def test_stop_kills_after_its_bound(start: Start) -> None:
    child = await start("signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + READY + "time.sleep(60)")
    await child.ready()
    assert await child.stop(bound_s=0.01) == "the gateway did not end within 0.01 s and was killed"


async def test_one_that_lives_on_without_its_lifeline_has_let_it_go(start: Start) -> None:
    """It is no rank of several: the user has not heard of any."""
    child = await start("lifeline.send(b'{\"ready\": {}}'); lifeline.close(); time.sleep(60)")
    await child.ready()
    assert (await child.ended()).startswith("the gateway has let its lifeline go; it last said")


async def test_kill_reaches_what_the_process_started(start: Start) -> None:
    child = await start("""if True:
        import subprocess
        grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        lifeline.send(b'{"ready": {"pid": "%d"}}' % grandchild.pid)
        grandchild.wait()
    """)
    pid = int((await child.ready())["pid"])
    await child.kill()
    while is_alive(pid):  # bounded by the test's timeout
        await asyncio.sleep(0.005)


async def test_kill_reaches_what_a_dead_process_started(start: Start) -> None:
    child = await start("""if True:
        import subprocess
        grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        lifeline.send(b'{"ready": {"pid": "%d"}}' % grandchild.pid)
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    pid = int((await child.ready())["pid"])
    assert (await child.ended()).startswith("the gateway was killed by SIGKILL")
    await child.kill()
    while is_alive(pid):  # bounded by the test's timeout
        await asyncio.sleep(0.005)


async def test_kill_does_not_wait_for_what_left_the_group(start: Start) -> None:
    child = await start("""if True:
        import subprocess
        stray = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
        lifeline.send(b'{"ready": {"pid": "%d"}}' % stray.pid)
        time.sleep(60)
    """)
    pid = int((await child.ready())["pid"])
    await child.kill()
    assert is_alive(pid)  # it holds the log pipe open, and that holds up nobody
    os.kill(pid, signal.SIGKILL)


async def test_one_that_is_stopped_before_it_has_a_lifeline_ends_with_its_supervisor(tmp_path: Path) -> None:
    supervisor = f"""if True:
        import asyncio, time
        from pathlib import Path
        from jetway.runtime.child import Child, Command, Listener
        async def main():
            command = Command("gateway", ["sh", "-c", "exec sleep 60", "sh"], [], Path({str(tmp_path / "life.sock")!r}))
            child = await Child.start(command, Listener(print, print))
            print(*child.pids, flush=True)
            time.sleep(60)
        asyncio.run(main())
    """
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", supervisor, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    pid = int(await process.stdout.readline())
    os.kill(pid, signal.SIGSTOP)
    while psutil.Process(pid).status() != psutil.STATUS_STOPPED:  # bounded by the test's timeout, as the next
        await asyncio.sleep(0.005)
    process.kill()
    await process.wait()
    while is_alive(pid):
        await asyncio.sleep(0.005)


async def test_a_line_without_end_is_cut(start: Start, lines: list[str]) -> None:
    child = await start("sys.stderr.write('x' * (5 << 20))")
    await child.ended()
    assert "".join(lines) == "x" * (5 << 20)
    assert max(len(line) for line in lines) < 2 << 20


async def test_a_missing_interpreter_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot start the executor with /nowhere/python: No such file"):
        await Child.start(
            Command("executor", ["/nowhere/python"], [], tmp_path / "lifeline.sock"), Listener(print, print)
        )
