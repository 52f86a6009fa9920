"""The supervisor as a process of its own, over roles that do nothing (tests/support/role.py)."""

import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from jetway.runtime.config import ExecutorConfig, ServeConfig
from jetway.runtime.launcher import role_command
from tests.support.processes import Running, is_alive, through_shell

SUPERVISE = Path(__file__).resolve().parent.parent / "support" / "supervise.py"
READY = "Ctrl-C stops"


@contextmanager
def supervised(
    runtime_parent: Path, *behaviours: str, redirect: str = "", starter: tuple[str, ...] = (), **settings: str
) -> Iterator[Running]:
    """`redirect` is a shell's, for example 2>/dev/full; `starter` a program that becomes the supervisor."""
    argv = through_shell([*starter, sys.executable, SUPERVISE, *behaviours], redirect)
    with Running.start(argv, runtime_parent, **{"port": "0", "grpc_port": "0", **settings}) as running:
        yield running


def pids(running: Running) -> list[int]:
    return [int(pid) for pid in running.facts("pid")]


def test_roles_start_in_order_and_drain_in_reverse(tmp_path: Path) -> None:
    with supervised(tmp_path) as running:
        running.wait_for(READY)
        running.send_signal(signal.SIGTERM)
        status, out, err = running.end()
    assert status == 0
    assert re.findall(r"^(\w+) ready", out, re.MULTILINE) == ["executor", "scheduler", "gateway"]
    assert re.findall(r"^\[(\w+)\] stopped", err, re.MULTILINE) == ["gateway", "scheduler", "executor"]
    assert not any(is_alive(pid) for pid in pids(running))
    assert list(tmp_path.iterdir()) == []


def test_runtime_directory_is_private_and_holds_the_configuration(tmp_path: Path) -> None:
    with supervised(tmp_path, port="0") as running:
        running.wait_for(READY)
        (directory,) = tmp_path.iterdir()
        assert directory.stat().st_mode & 0o777 == 0o700
        assert "port: 0  # environment JETWAY_PORT" in (directory / "serve.yaml").read_text()


ROLES = ["executor", "scheduler", "gateway"]


@pytest.mark.parametrize("number", [0, 1, 2], ids=ROLES)
def test_a_killed_role_is_replaced_and_the_others_stay(tmp_path: Path, number: int) -> None:
    with supervised(tmp_path) as running:
        running.wait_for(READY)
        first = pids(running)
        os.kill(first[number], signal.SIGKILL)
        running.wait_for(f"the {ROLES[number]} was killed by SIGKILL")
        running.wait_for("  config", times=4)
        running.send_signal(signal.SIGTERM)
        assert running.end().status == 0
    *kept, replacement = pids(running)
    assert kept == first
    assert replacement not in first
    assert not any(is_alive(pid) for pid in pids(running))


def test_a_lost_role_is_named_with_its_last_words(tmp_path: Path) -> None:
    with supervised(tmp_path) as running:
        running.wait_for(READY)
        (directory,) = tmp_path.iterdir()
        (directory / "scheduler").touch()
        running.wait_for("the scheduler exited with status 7; it last said:\n    starting\n    something broke\n")


def test_each_life_has_its_own_socket_and_nothing_answers_for_the_dead(tmp_path: Path) -> None:
    with supervised(tmp_path) as running:
        running.wait_for(READY)
        (directory,) = tmp_path.iterdir()
        link = directory / "scheduler.sock"
        assert (link.readlink(), link.exists()) == (Path("scheduler-2.sock"), True)
        os.kill(pids(running)[1], signal.SIGKILL)
        running.wait_for("  config", times=4)
        assert (link.readlink(), link.exists()) == (Path("scheduler-4.sock"), True)
        assert not (directory / "scheduler-2.sock").exists()


@pytest.mark.parametrize("behaviour", ["hang", "serve"])
def test_a_role_that_hangs_is_replaced(tmp_path: Path, behaviour: str) -> None:
    """It beats no more, or is stopped as a whole."""
    with supervised(tmp_path, f"executor={behaviour}", hang_timeout_s="0.5") as running:
        running.wait_for(READY)
        (directory,) = tmp_path.iterdir()
        if behaviour == "hang":
            (directory / "hang").touch()
        else:
            os.kill(pids(running)[0], signal.SIGSTOP)
        running.wait_for("the executor made no progress for 0.5 s and was killed; it last said:\n    starting\n")
        (directory / "hang").unlink(missing_ok=True)
        running.wait_for("  pid", times=4)
        assert not is_alive(pids(running)[0])


def test_a_life_that_cannot_be_put_on_record_is_a_failed_start(tmp_path: Path) -> None:
    """The fourth epoch is the replacement's; a directory in the place of its record stands for a full disk."""
    with supervised(tmp_path) as running:
        running.wait_for(READY)
        (directory,) = tmp_path.iterdir()
        (directory / "life-4.new").mkdir()
        os.kill(pids(running)[0], signal.SIGKILL)
        running.wait_for("the executor cannot be entered in")
        running.wait_for("  config", times=4)
        running.send_signal(signal.SIGTERM)
        assert running.end().status == 0


def test_a_life_that_cannot_be_tied_to_the_supervisor_is_a_failed_start(tmp_path: Path) -> None:
    """As above: a directory in the place of its lifelines' socket stands for a full disk."""
    with supervised(tmp_path) as running:
        running.wait_for(READY)
        (directory,) = tmp_path.iterdir()
        (directory / "life-4.sock").mkdir()
        os.kill(pids(running)[0], signal.SIGKILL)
        running.wait_for(f"nothing can be tied to {directory / 'life-4.sock'}: Address already in use")
        running.wait_for("  config", times=4)
        running.send_signal(signal.SIGTERM)
        assert running.end().status == 0


def test_a_role_that_cannot_be_started_again_ends_all_of_it(tmp_path: Path) -> None:
    with supervised(tmp_path, "executor=once", max_failed_starts="2") as running:
        running.wait_for(READY)
        os.kill(pids(running)[0], signal.SIGKILL)
        status, out, _ = running.end()
    assert status == 1
    last_words = "the executor exited with status 3; it last said:\n    starting\n"
    assert out.endswith(f"{last_words}the executor failed to start 2 times in a row; {last_words}")
    assert not any(is_alive(pid) for pid in pids(running))
    assert list(tmp_path.iterdir()) == []


def test_a_role_lost_while_the_gateway_drains_is_replaced(tmp_path: Path) -> None:
    with supervised(tmp_path, "gateway=stubborn", drain_timeout_s="3600") as running:
        running.wait_for(READY)
        running.send_signal(signal.SIGTERM)
        running.wait_for("stopping")
        os.kill(pids(running)[0], signal.SIGKILL)
        running.wait_for("executor ready", times=2)


def test_a_role_lost_while_the_others_start_ends_all_of_it(tmp_path: Path) -> None:
    with supervised(tmp_path, "scheduler=mute") as running:
        running.wait_for("pid")
        os.kill(pids(running)[0], signal.SIGKILL)
        status, out, _ = running.end()
    assert status == 1
    assert "the executor was killed by SIGKILL" in out


def test_a_role_that_crashes_at_start(tmp_path: Path) -> None:
    with supervised(tmp_path, "scheduler=crash") as running:
        status, out, _ = running.end()
    assert status == 1
    assert out.endswith("the scheduler exited with status 3; it last said:\n    starting\n")
    assert "gateway" not in out


def test_a_role_that_refuses_its_configuration(tmp_path: Path) -> None:
    with supervised(tmp_path, "executor=refuse") as running:
        status, out, _ = running.end()
    assert (status, out) == (2, "executor: threads must be even\n")


def test_a_start_that_takes_too_long(tmp_path: Path) -> None:
    with supervised(tmp_path, "executor=mute", start_timeout_s="0.2") as running:
        status, out, _ = running.end()
    assert (status, out) == (1, "the executor was not ready within start_timeout_s, which is 0.2\n")
    assert list(tmp_path.iterdir()) == []


def test_a_signal_while_starting_stops(tmp_path: Path) -> None:
    with supervised(tmp_path, "scheduler=mute") as running:
        running.wait_for("pid")
        running.send_signal(signal.SIGINT)
        assert running.end().status == 0
    assert not any(is_alive(pid) for pid in pids(running))


def test_a_second_signal_stops_at_once(tmp_path: Path) -> None:
    with supervised(tmp_path, "gateway=stubborn", drain_timeout_s="3600") as running:
        running.wait_for(READY)
        running.send_signal(signal.SIGTERM)
        running.wait_for("stopping")
        running.send_signal(signal.SIGTERM)
        assert running.end().status == 1
    assert not any(is_alive(pid) for pid in pids(running))
    assert list(tmp_path.iterdir()) == []


def test_two_signals_at_once_are_two(tmp_path: Path) -> None:
    with supervised(tmp_path, "gateway=stubborn", drain_timeout_s="3600") as running:
        running.wait_for(READY)
        running.send_signal(signal.SIGSTOP)
        running.send_signal(signal.SIGINT)  # both are there when it goes on; of one number the kernel keeps one only
        running.send_signal(signal.SIGTERM)
        running.send_signal(signal.SIGCONT)
        status, out, _ = running.end()
    assert status == 1
    assert "a second signal stops at once" in out
    assert not any(is_alive(pid) for pid in pids(running))


def test_a_hangup_renews_the_gateways_one_by_one(tmp_path: Path) -> None:
    with supervised(tmp_path, num_processes="2") as running:
        running.wait_for(READY)
        running.send_signal(signal.SIGHUP)
        running.wait_for("  config", times=6)
        while any(is_alive(pid) for pid in pids(running)[2:4]):  # bounded by the test's timeout
            time.sleep(0.005)
        executor, scheduler, _, _, *renewed = pids(running)
        assert all(is_alive(pid) for pid in (executor, scheduler, *renewed))
        running.send_signal(signal.SIGTERM)
        status, _, err = running.end()
    assert status == 0
    said = re.findall(r"^\[(\w+)\] (retired|stopped)", err, re.MULTILINE)
    assert said[:2] == [("gateway", "retired")] * 2
    assert said[2:] == [(role, "stopped") for role in ("gateway", "gateway", "scheduler", "executor")]
    assert not any(is_alive(pid) for pid in pids(running))


def test_gateways_stay_when_their_successor_does_not_come_to_serve(tmp_path: Path) -> None:
    with supervised(tmp_path, "gateway=once") as running:
        running.wait_for(READY)
        running.send_signal(signal.SIGHUP)
        running.wait_for("the gateway exited with status 3; it last said:\n    starting\nthe gateways stay as they are")
        running.send_signal(signal.SIGTERM)
        status, _, err = running.end()
    assert status == 0
    assert "[gateway] stopped" in err


def test_a_signal_stops_while_a_gateway_is_renewed(tmp_path: Path) -> None:
    """Both gateways stop: that which would not go, and that which has come for it."""
    with supervised(tmp_path, "gateway=stubborn", drain_timeout_s="3600") as running:
        running.wait_for(READY)
        running.send_signal(signal.SIGHUP)
        running.wait_for("  config", times=4)
        running.send_signal(signal.SIGTERM)
        running.wait_for("stopping")
        running.send_signal(signal.SIGTERM)
        assert running.end().status == 1
    assert not any(is_alive(pid) for pid in pids(running))


def test_a_role_may_ask_for_a_drain_of_everything(tmp_path: Path) -> None:
    with supervised(tmp_path, "gateway=drain") as running:
        status, out, err = running.end()
    assert status == 0
    assert "stopping: open requests may end" in out
    assert re.findall(r"^\[(\w+)\] stopped", err, re.MULTILINE) == ["gateway", "scheduler", "executor"]


def test_without_its_terminal_it_stops(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    with supervised(tmp_path, redirect=f"<{os.ttyname(theirs)}", starter=("setsid", "--ctty")) as running:
        os.close(theirs)
        running.wait_for(READY)
        os.close(ours)
        status, _, err = running.end()
    assert status == 0
    assert re.findall(r"^\[(\w+)\] stopped", err, re.MULTILINE) == ["gateway", "scheduler", "executor"]


def test_under_nohup_a_hangup_is_nothing(tmp_path: Path) -> None:
    with supervised(tmp_path, redirect="; trap '' HUP") as running:
        running.wait_for(READY)
        running.send_signal(signal.SIGHUP)
        running.send_signal(signal.SIGTERM)  # a hangup that counted would make it the second signal
        assert running.end().status == 0


@pytest.mark.parametrize("redirect", ["2>/dev/full", "2>&-", ">/dev/full", ">&-", ">&- 2>&-", "2>&1"])
def test_it_serves_and_stops_whoever_reads(tmp_path: Path, redirect: str) -> None:
    """2>&1: both go to a pipe that nobody reads here."""
    with supervised(tmp_path, "gateway=chatty", redirect=redirect) as running:
        while not list(tmp_path.glob("*/said")):  # bounded by the test's timeout
            time.sleep(0.005)
        running.send_signal(signal.SIGTERM)
        while is_alive(running.pid):
            time.sleep(0.005)
        assert running.end().status == 0
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_supervisor_left_is_swept_at_the_next_start(tmp_path: Path) -> None:
    with supervised(tmp_path) as killed, supervised(tmp_path) as living:
        killed.wait_for(READY)
        living.wait_for(READY)
        killed.send_signal(signal.SIGKILL)
        killed.end()
        kept = Path(living.facts("config")[0]).parent
        assert set(tmp_path.iterdir()) == {kept, Path(killed.facts("config")[0]).parent}
        with supervised(tmp_path) as following:
            following.wait_for(READY)
            assert set(tmp_path.iterdir()) == {kept, Path(following.facts("config")[0]).parent}


@pytest.mark.parametrize("behaviour", ["stubborn", "mute", "deaf"])
@pytest.mark.parametrize("number", [signal.SIGCONT, signal.SIGSTOP])
def test_no_role_outlives_a_killed_supervisor(tmp_path: Path, behaviour: str, number: int) -> None:
    """Whether it serves or still loads, and even if it is stopped."""
    with supervised(tmp_path, f"gateway={behaviour}") as running:
        while not list(tmp_path.glob("*/gateway-watches")):  # bounded by the test's timeout
            time.sleep(0.005)
        roles = psutil.Process(running.pid).children()
        assert len(roles) == 3
        for role in roles:
            role.send_signal(number)
        running.send_signal(signal.SIGKILL)
        while any(is_alive(role.pid) for role in roles):
            time.sleep(0.005)


def test_only_the_executor_runs_in_another_python() -> None:
    config = ServeConfig(engine=Path("engine"), executor=ExecutorConfig(python="/opt/trt/bin/python"))
    command = role_command(config)
    assert command("executor") == ["/opt/trt/bin/python", "-m", "jetway.runtime.role", "executor"]
    assert command("gateway") == [sys.executable, "-m", "jetway.runtime.role", "gateway"]


def test_imports_no_grpc() -> None:
    program = "import sys, jetway.runtime.cli, jetway.runtime.supervisor; print({'grpc', 'numpy'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "set()\n"
