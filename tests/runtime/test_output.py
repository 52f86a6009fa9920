"""Each as a program of its own: what matters is what the process that started it sees."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jetway.runtime.output import Outlet
from tests.support.processes import through_shell

SAY = "from jetway.runtime.output import standard_outlets\nwith standard_outlets() as outlets:\n    "


def test_lines_come_in_order_and_are_all_there_at_the_end() -> None:
    read_fd, write_fd = os.pipe()
    with Outlet(write_fd) as outlet:
        for i in range(100):
            outlet.say(f"line {i}")
    os.close(write_fd)
    with os.fdopen(read_fd) as lines:
        assert lines.read().splitlines() == [f"line {i}" for i in range(100)]


def test_what_waits_is_bounded_and_later_lines_are_lost() -> None:
    read_fd, write_fd = os.pipe()
    with Outlet(write_fd) as outlet, os.fdopen(read_fd) as lines:
        for i in range(100):
            outlet.say(f"{i:02}" + "x" * (1 << 20))
        kept = [lines.readline()[:2] for _ in range(3)]
        os.close(write_fd)
        assert (kept, lines.read()) == (["00", "01", "02"], "")


def test_after_a_failure_lines_are_written_again(tmp_path: Path) -> None:
    """A disk that was full and is not any more."""
    fd = os.open("/dev/full", os.O_WRONLY)
    with Outlet(fd) as outlet:
        outlet.say("lost")
    file_fd = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    os.dup2(file_fd, fd)
    with Outlet(fd) as outlet:
        outlet.say("kept")
    os.close(file_fd)
    os.close(fd)
    assert (tmp_path / "log").read_text() == "kept\n"


def test_a_closed_standard_error_leads_nowhere() -> None:
    """Its number must not go to the next pipe that is opened."""
    program = f"{SAY}import os; ends = os.pipe(); outlets.err.say('for nobody'); print(min(ends) > 2)"
    assert subprocess.check_output(through_shell([sys.executable, "-c", program], "2>&-"), text=True) == "True\n"


@pytest.mark.parametrize(
    ("arguments", "redirect", "status", "err"),
    [
        (["serve", "e", "--print-config"], ">/dev/full", 1, "cannot be written: No space left on device\n"),
        (["serve"], "2>/dev/full", 2, ""),
    ],
)
def test_the_status_is_right_where_nothing_can_be_said(
    arguments: list[str], redirect: str, status: int, err: str
) -> None:
    argv = [sys.executable, "-c", "import sys; from jetway.runtime.cli import main; sys.exit(main())", *arguments]
    ended = subprocess.run(through_shell(argv, redirect), capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr.endswith(err), ended.stderr.count("\n")) == (status, True, err.count("\n"))


def test_a_reader_that_has_gone_ends_what_prints_without_a_word() -> None:
    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    argv = [sys.executable, "-c", "import sys; from jetway.runtime.cli import main; sys.exit(main())"]
    argv += ["serve", "e", "--print-config"]
    ended = subprocess.run(argv, stdout=write_fd, stderr=subprocess.PIPE, check=False)
    os.close(write_fd)
    assert (ended.returncode, ended.stderr) == (128 + 13, b"")
