"""What the doctor finds, and how it is told."""

import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

WIDTH = 28  # of the first column


class Outcome(Enum):
    OK = "ok"
    SKIPPED = "skipped"
    FAILED = "FAILED"


class NotHere(Exception):
    """A check that cannot be made on this machine, and why."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check, in lines."""

    what: str
    outcome: Outcome
    lines: tuple[str, ...]
    trace: str = ""  # of what was raised

    def __str__(self) -> str:
        """A row of a table, of as many lines as it takes."""
        head = f"{self.what:{WIDTH}}{self.outcome.value:9}"
        rows = [(head if i == 0 else " " * len(head)) + line for i, line in enumerate(self.lines or ("",))]
        return "\n".join(row.rstrip() for row in rows)


def attempt(what: str, check: Callable[[], Iterable[str]]) -> Finding:
    """Make a check. Whatever it raises is a finding: none keeps the others from being made."""
    try:
        return Finding(what, Outcome.OK, tuple(check()))
    except NotHere as reason:
        return Finding(what, Outcome.SKIPPED, (str(reason),))
    except Exception as error:  # noqa: BLE001  whatever is wrong with a machine, it is what was looked for
        return failed(what, error)


def failed(what: str, error: Exception) -> Finding:
    lines = [line for line in f"{type(error).__name__}: {error}".splitlines() if line]
    return Finding(what, Outcome.FAILED, tuple(lines), "".join(traceback.format_exception(error)))


def as_report(findings: Iterable[Finding]) -> str:
    """All of them, and below what was raised."""
    findings = list(findings)
    traces = [f"\n{finding.what}\n{finding.trace}" for finding in findings if finding.trace]
    return "".join(f"{finding}\n" for finding in findings) + "".join(traces)
