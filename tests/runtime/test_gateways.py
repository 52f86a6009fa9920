"""Several gateways behind the same two ports, and gateways that are replaced, with clients that do not stop asking."""

import http.client
import json
import signal
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
import openai
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from jetway.v1.inference_pb2 import GenerateRequest
from jetway.v1.inference_pb2_grpc import InferenceStub
from tests.support.processes import Running
from tests.support.serving import READY, processes_of, serving
from tests.support.tokenizers import byte_level, write_engine

PROMPT: dict[str, Any] = {"model": "tiny", "prompt": "hi", "max_tokens": 5}
OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]


@pytest.fixture
def engine_dir(tmp_path: Path) -> Path:
    directory = tmp_path / "engine"
    directory.mkdir()
    return write_engine(directory, byte_level())


@dataclass
class Client:
    """Asks again and again in a thread of its own, from one answer to the next."""

    ask: Callable[[], None]
    num_answers: int = 0
    failure: Exception | None = None

    def wait_for_another_answer(self) -> None:
        num_before = self.num_answers
        while self.num_answers == num_before and self.failure is None:  # bounded by the test's timeout
            time.sleep(0.005)

    @contextmanager
    def asking(self) -> Iterator[None]:
        stop = threading.Event()

        def run() -> None:
            try:
                while not stop.is_set():
                    self.ask()
                    self.num_answers += 1
            except Exception as error:  # noqa: BLE001  # whatever it is, the test shows it
                self.failure = error

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


def make_clients(running: Running, client: openai.OpenAI, channel: grpc.Channel) -> list[Client]:
    """One of each protocol that keeps its connection, and one that connects for each call."""
    (address,) = running.facts("grpc")
    request = GenerateRequest(text="hi", max_tokens=5)

    def kept_http() -> None:
        client.completions.create(**PROMPT)

    def new_http() -> None:
        assert post(running, PROMPT).status == 200

    def kept_grpc() -> None:
        InferenceStub(channel).Generate(request)

    def new_grpc() -> None:
        with grpc.insecure_channel(address, options=OWN_CONNECTION) as fresh:
            InferenceStub(fresh).Generate(request)

    return [Client(ask) for ask in (kept_http, new_http, kept_grpc, new_grpc)]


def post(running: Running, body: dict[str, Any]) -> http.client.HTTPResponse:
    """An answer that has begun, over a connection of its own."""
    connection = http.client.HTTPConnection(urlsplit(running.facts("openai")[0]).netloc)
    headers = {"content-type": "application/json", "connection": "close"}
    connection.request("POST", "/v1/completions", json.dumps(body), headers)
    return connection.getresponse()


@pytest.mark.timeout(60)
def test_gateways_are_renewed_without_a_failed_request(engine_dir: Path) -> None:
    """Clients that ask on one connection, and such that connect each time, by HTTP and by gRPC; and an open stream."""
    with serving(engine_dir, max_connection_age_s="0.5", simulated_step_s="0.001") as running:
        running.wait_for(READY)
        (old,) = processes_of(running, "gateway")
        url, address = running.facts("openai")[0], running.facts("grpc")[0]
        with (
            openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client,
            grpc.insecure_channel(address) as channel,
        ):
            clients = make_clients(running, client, channel)
            with ExitStack() as asking:
                for each in clients:
                    asking.enter_context(each.asking())
                stream = InferenceStub(channel).GenerateStream(GenerateRequest(text="hi", max_tokens=400))
                next(stream)
                running.send_signal(signal.SIGHUP)
                running.wait_for("  grpc ", times=2)
                num_tokens = 1 + sum(len(delta.token_ids) for delta in stream)
                old.wait()
                for each in clients:
                    each.wait_for_another_answer()
            assert [each.failure for each in clients] == [None] * 4
        assert num_tokens == 400
        assert (set(running.facts("openai")), set(running.facts("grpc"))) == ({url}, {address})
        running.send_signal(signal.SIGTERM)
        assert running.end().status == 0


def figures(running: Running) -> tuple[float, float]:
    """Requests that ended as long as they were to be, and those that live, of all gateways."""
    with urllib.request.urlopen(running.facts("openai")[0].removesuffix("v1") + "metrics") as response:
        text = response.read().decode()
    families = {family.name: family.samples for family in text_string_to_metric_families(text)}
    ended = {sample.labels["outcome"]: sample.value for sample in families["jetway_requests"]}
    (live,) = families["jetway_live_requests"]
    return ended["length"], live.value


@contextmanager
def standing_still(process: psutil.Process) -> Iterator[None]:
    process.suspend()
    try:
        yield
    finally:
        process.resume()


@pytest.mark.timeout(60)
def test_only_the_requests_inside_a_killed_gateway_fail(engine_dir: Path) -> None:
    with serving(engine_dir, num_processes="2", simulated_step_s="0.005") as running:
        running.wait_for(READY)
        dying, living = processes_of(running, "gateway")
        with standing_still(dying):
            kept = post(running, PROMPT | {"max_tokens": 300, "stream": True})
        with standing_still(living):
            lost = post(running, PROMPT | {"max_tokens": 300, "stream": True})
        dying.kill()
        with pytest.raises(http.client.IncompleteRead):
            lost.read()
        assert kept.read().endswith(b"data: [DONE]\n\n")
        assert post(running, PROMPT).read()
        running.wait_for("  grpc ", times=3)
        assert {figures(running) for _ in range(5)} == {(2.0, 0.0)}  # whichever answers
        assert len(set(running.facts("grpc"))) == 1
        running.send_signal(signal.SIGTERM)
        assert running.end().status == 0
