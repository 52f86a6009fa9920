"""Serves the demo engine, streams the answer to one question and stays up; `--once` checks the answer and ends."""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from scripts.setup import ENGINE, JETWAY, LAST_LINES, VENV, read_lines

QUESTION = "What is the capital of France?"
EXPECTED = "Paris"
LOG = JETWAY / "log" / "serve.log"
PORTS = {"--port": 8000, "--grpc-port": 8001}


class DemoFailed(Exception):
    pass


@dataclass(frozen=True, slots=True)
class Answer:
    """What came, and when: seconds from the request to each piece of text."""

    text: str
    num_tokens: int
    times_s: Sequence[float]

    @property
    def summary(self) -> str:
        if len(self.times_s) < 2:
            return f"{self.num_tokens} tokens in {len(self.times_s)} pieces: too few to measure"
        first_s, last_s = self.times_s[0], self.times_s[-1]
        tokens_per_s = (self.num_tokens - 1) / (last_s - first_s)
        return f"first token {first_s * 1000:.0f} ms, {tokens_per_s:.1f} tokens/s ({self.num_tokens} tokens)"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--once", action="store_true", help="end after the answer; status 0 if it is right")
    once = parser.parse_args().once
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        return ask_once() if once else stay_up()
    except DemoFailed as error:
        last_lines = "".join(f"\n    {line}" for line in read_lines(LOG)[-LAST_LINES:])
        print(f"\n{error}\n  {LOG}:{last_lines}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE


def ask_once() -> int:
    server = start_server(dict.fromkeys(PORTS, 0))  # any free ports: it never collides
    try:
        answer = ask(wait_until_ready(server))
    finally:
        status = stop(server)
    if status != 0:
        raise DemoFailed(f"jetway serve ended with status {status}")
    if EXPECTED not in answer.text:
        raise DemoFailed(f"the answer does not name {EXPECTED}")
    print(answer.summary)
    return 0


def stay_up() -> int:
    server = start_server({flag: port if is_free(port) else 0 for flag, port in PORTS.items()})
    try:
        facts = wait_until_ready(server)
        print(f"{ask(facts).summary}\n\ncurl {facts['openai']}/chat/completions -H 'Content-Type: application/json' \\")
        print(f"  -d '{json.dumps(chat(facts['model']))}'\n\nserving until Ctrl-C", flush=True)
        for line in lines_of(server):
            print(line, flush=True)
        raise DemoFailed(f"jetway serve ended with status {server.wait()}")
    except KeyboardInterrupt:
        return 0 if stop(server) == 0 else 1
    finally:
        stop(server)


def start_server(ports: dict[str, int]) -> subprocess.Popen[str]:
    command = [str(VENV / "bin" / "jetway"), "serve", str(ENGINE), "--model-name", ENGINE.name]
    for flag, port in ports.items():
        command += [flag, str(port)]
    with LOG.open("wb") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,  # a Ctrl-C reaches this process only, which stops the server once
        )


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def wait_until_ready(server: subprocess.Popen[str]) -> dict[str, str]:
    """Show the server's lines until it is ready; what it says of itself, for example its addresses."""
    facts: dict[str, str] = {}
    for line in lines_of(server):
        print(f"  {line}", flush=True)
        name, _, value = line.strip().partition(" ")
        facts[name] = value.strip()
        if line.startswith("ready in"):
            return facts
    raise DemoFailed(f"jetway serve ended with status {server.wait()} before it was ready")


def lines_of(server: subprocess.Popen[str]) -> Iterator[str]:
    assert server.stdout is not None
    return (line.rstrip() for line in server.stdout)


def chat(model: str) -> dict[str, object]:
    return {"model": model, "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 64, "temperature": 0}


def ask(facts: dict[str, str]) -> Answer:
    """Stream the answer to the terminal."""
    body = chat(facts["model"]) | {"stream": True, "stream_options": {"include_usage": True}}
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{facts['openai']}/chat/completions", json.dumps(body).encode(), headers)
    print(f"\n> {QUESTION}")
    text, num_tokens, times_s = "", 0, []
    started_s = time.monotonic()
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            for event in events(response):
                for piece in (choice["delta"].get("content") for choice in event["choices"]):
                    if piece:
                        times_s.append(time.monotonic() - started_s)
                        text += piece
                        print(piece, end="", flush=True)
                num_tokens = (event.get("usage") or {}).get("completion_tokens", num_tokens)
    except OSError as error:
        raise DemoFailed(f"the request failed: {error}") from error
    print("\n")
    return Answer(text, num_tokens, times_s)


def events(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """The JSON objects of a stream of server-sent events."""
    for line in lines:
        data = line.decode().removeprefix("data:").strip()
        if data == "[DONE]":
            return
        if data:
            yield json.loads(data)


def stop(server: subprocess.Popen[str]) -> int:
    """Drain it and wait; an interrupt meanwhile stops it at once. Its exit status."""
    if server.poll() is None:
        server.terminate()
    try:
        return server.wait()
    except KeyboardInterrupt:
        server.terminate()
        return server.wait()


if __name__ == "__main__":
    sys.exit(main())
