import json
import logging
import os
import sys

import pytest

from jetway.runtime.logs import JsonFormatter, console, log_to_stderr


def record(message: str, *args: object, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("jetway.x", logging.INFO, "x.py", 1, message, args, exc_info=None)
    made.created = 1_700_000_000.25
    made.__dict__.update(fields)
    return made


def test_a_record_is_one_object() -> None:
    line = JsonFormatter("gateway").format(record("ended %s after %d tokens", "a", 3))
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.250+00:00",
        "level": "INFO",
        "logger": "jetway.x",
        "message": "ended a after 3 tokens",
        "role": "gateway",
        "pid": os.getpid(),
    }


def test_a_request_id_is_a_field() -> None:
    line = JsonFormatter("gateway").format(record("ended", request_id="cmpl-1"))
    assert json.loads(line)["request_id"] == "cmpl-1"


def test_a_rank_is_named(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "root", logging.RootLogger(logging.WARNING))  # basicConfig sets up no other logger
    log_to_stderr("text", "info", "executor", rank=1)
    logging.root.handle(record("loading"))
    assert capfd.readouterr().err == "rank 1: INFO jetway.x: loading\n"
    assert json.loads(JsonFormatter("executor", 1).format(record("loading")))["rank"] == 1


def test_line_breaks_and_tracebacks_stay_inside_the_line() -> None:
    try:
        raise ValueError("bad\nvalue")
    except ValueError:
        line = JsonFormatter("gateway").format(record("a\nb ü", exc_info=sys.exc_info()))
    assert "\n" not in line
    fields = json.loads(line)
    assert fields["message"] == "a\nb ü"
    assert fields["exception"].startswith("Traceback") and fields["exception"].endswith("ValueError: bad\nvalue")


def test_text_is_prefixed_with_the_role(capfd: pytest.CaptureFixture[str]) -> None:
    with console("text") as text:
        text.say("  pool     64 blocks")
        text.relay("executor", "INFO x: loaded")
    assert capfd.readouterr() == ("  pool     64 blocks\n", "[executor] INFO x: loaded\n")


def test_json_of_a_role_passes_as_it_is(capfd: pytest.CaptureFixture[str]) -> None:
    line = JsonFormatter("executor").format(record("loaded"))
    with console("json") as json_console:
        json_console.relay("executor", line)
    assert capfd.readouterr() == ("", line + "\n")


def test_other_lines_become_json(capfd: pytest.CaptureFixture[str]) -> None:
    with console("json") as json_console:
        json_console.say("  pool     64 blocks")
        json_console.relay("executor", "{'a': library")
    out, err = (json.loads(line) for line in capfd.readouterr())
    assert (out["role"], out["message"], out["pid"]) == ("supervisor", "pool     64 blocks", os.getpid())
    assert (err["role"], err["logger"], err["message"]) == ("executor", "stderr", "{'a': library")
