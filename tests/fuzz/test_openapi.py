"""Requests that schemathesis makes of docs/openapi.json, good and bad, to a gateway on loopback: no fault, no answer that
the document does not know.
"""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from jetway.runtime.gateway.openai.openapi import document
from jetway.v1 import common_pb2, scheduler_pb2
from tests.support.fake_scheduler import LENGTH, FakeScheduler, accepted, sampled, scored
from tests.support.gateway import running_gateway
from tests.support.tokenizers import byte_level, write_engine


def everything(add: scheduler_pb2.Add) -> list[scheduler_pb2.SessionFrame]:
    """Accepted, and two tokens for each choice."""
    ends = [sampled(add.handle, [5, 6], LENGTH, index=index) for index in range(add.n)]
    if add.sampling.HasField("logprobs"):
        ends = [scored(end, [common_pb2.TokenLogprobs(logprob=-1)] * 2) for end in ends]
    return [accepted(add.handle), *ends]


SCHEMA = schemathesis.openapi.from_dict(document())
SCHEMA.config.generation.allow_extra_parameters = False  # headers that nobody knows are no mistake


@pytest.fixture(scope="module")
def base_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a gateway whose scheduler answers everything; its event loop has a thread of its own."""
    engine_dir = write_engine(tmp_path_factory.mktemp("engine"), byte_level())
    ports: list[int] = []
    listening, stop = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with FakeScheduler() as scheduler:
            scheduler.script = everything
            async with running_gateway(engine_dir, scheduler.address) as gateway:
                ports.append(gateway.http_port)
                listening.set()
                await stop.wait()

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    listening.wait(10.0)
    yield f"http://127.0.0.1:{ports[0]}"
    loop.call_soon_threadsafe(stop.set)
    thread.join()
    loop.close()


@SCHEMA.parametrize()
@settings(max_examples=60, derandomize=True, deadline=None, database=None)
@pytest.mark.timeout(60)
def test_every_answer_is_one_of_the_document(case: Any, base_url: str) -> None:
    # A document cannot say what depends on the model, or which two fields disagree: good requests may be refused.
    case.call_and_validate(base_url=base_url, timeout=10.0, excluded_checks=[positive_data_acceptance])
