"""What the processes say: as text, or as JSON, one object a line whoever said it."""

import json
import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Literal, Protocol

from .output import Outlets, standard_outlets

LogFormat = Literal["text", "json"]

_TEXT = "%(levelname)s %(name)s: %(message)s"  # the supervisor puts the role before it
_BEGINNING = '{"time": '  # of every line of ours


def log_to_stderr(log_format: LogFormat, level: str, role: str, rank: int | None = None) -> None:
    """Let this process log, which may be one of several ranks. A record's `extra={"request_id": ...}` becomes a field in
    JSON."""
    text = _TEXT if rank is None else f"rank {rank}: {_TEXT}"
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter(role, rank) if log_format == "json" else logging.Formatter(text))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    if level == "debug":
        for name in ("asyncio", "grpc"):
            logging.getLogger(name).setLevel(logging.INFO)  # their debug lines would bury ours


class JsonFormatter(logging.Formatter):
    """Lines of one role."""

    def __init__(self, role: str, rank: int | None = None) -> None:
        super().__init__()
        self._role = role
        self._rank = rank

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "role": self._role,
            "pid": record.process,
        }
        if self._rank is not None:
            fields["rank"] = self._rank
        if (request_id := getattr(record, "request_id", None)) is not None:
            fields["request_id"] = request_id
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return _json_line(record.created, fields)


def _json_line(seconds: float, fields: Mapping[str, object]) -> str:
    """`seconds` since the epoch; the time is written in UTC."""
    moment = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return json.dumps({"time": moment, **fields})


class Console(Protocol):
    """The supervisor's way out. It neither waits nor fails, whoever reads."""

    def say(self, line: str) -> None:
        """To the user, on standard output."""
        ...

    def relay(self, role: str, line: str) -> None:
        """A line that a role's process wrote, to standard error."""
        ...


class TextConsole:
    def __init__(self, outlets: Outlets) -> None:
        self._outlets = outlets

    def say(self, line: str) -> None:
        self._outlets.out.say(line)

    def relay(self, role: str, line: str) -> None:
        self._outlets.err.say(f"[{role}] {line}")


class JsonConsole:
    """A role's own JSON passes as it is; what a library or a dying process writes is put into JSON here."""

    def __init__(self, outlets: Outlets) -> None:
        self._outlets = outlets

    def say(self, line: str) -> None:
        fields = {
            "level": "INFO",
            "logger": __name__,
            "message": line.strip(),
            "role": "supervisor",
            "pid": os.getpid(),
        }
        self._outlets.out.say(_json_line(time.time(), fields))

    def relay(self, role: str, line: str) -> None:
        if not line.startswith(_BEGINNING):
            line = _json_line(time.time(), {"level": "INFO", "logger": "stderr", "message": line, "role": role})
        self._outlets.err.say(line)


@contextmanager
def console(log_format: LogFormat) -> Iterator[Console]:
    """For as long as the block runs; at its end, a reader gets a moment for what it has not read."""
    with standard_outlets() as outlets:
        yield JsonConsole(outlets) if log_format == "json" else TextConsole(outlets)
