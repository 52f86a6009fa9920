"""A queue that is really full, from a real scheduler to the client: refused with a computed Retry-After, and counted."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from jetway.runtime.gateway.app import Gateway
from jetway.scheduler.classes import ServiceClass
from jetway.scheduler.scheduler import Scheduler
from tests.support.gateway import running_gateway
from tests.support.http import Answer, exchange, post, request
from tests.support.scheduling import ReferenceExecutor, make_scheduler
from tests.support.step_service import SteppedExecutor, serve_scheduler


@pytest.fixture
def one_slot() -> Scheduler:
    """One runs, one may wait."""
    return make_scheduler(max_num_seqs=1, classes=[ServiceClass(max_queued_requests=1)])


@pytest.fixture
async def full(one_slot: Scheduler, engine_dir: Path, tmp_path: Path) -> AsyncIterator[Gateway]:
    """The executor answers nothing, so that what runs goes on running."""
    executor = SteppedExecutor(ReferenceExecutor())
    executor.hold_after(0)
    async with (
        serve_scheduler(one_slot, executor, tmp_path / "s.sock") as address,
        running_gateway(engine_dir, address) as gateway,
    ):
        yield gateway


def ask(gateway: Gateway) -> "asyncio.Task[Answer]":
    body = {"model": "tiny", "prompt": "hi", "max_tokens": 50}
    return asyncio.create_task(exchange(gateway.http_port, post("/v1/completions", body)))


async def count(gateway: Gateway, name: str) -> dict[str, float]:
    """The samples of a metric by their one label."""
    answer = await exchange(gateway.http_port, request("GET", "/metrics"))
    families = text_string_to_metric_families(answer.body.decode())
    samples = [sample for family in families for sample in family.samples if sample.name == name]
    return {next(iter(sample.labels.values()), ""): sample.value for sample in samples}


async def test_of_two_submitted_at_once_where_one_may_wait_exactly_one_gets_429(
    full: Gateway, one_slot: Scheduler
) -> None:
    runs = ask(full)
    while not one_slot.stats(0.0).num_running:
        await asyncio.sleep(0.001)
    pair = [ask(full), ask(full)]
    done, waits = await asyncio.wait(pair, return_when=asyncio.FIRST_COMPLETED)
    refused = done.pop().result()
    assert not done
    assert refused.status == 429
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert b"class standard may queue 1 requests; this request makes it 2" in refused.body
    assert await count(full, "jetway_rejections_total") == {
        "invalid": 0,
        "max_queued_requests": 1,
        "max_queued_tokens": 0,
        "queue_timeout_s": 0,
    }
    assert await count(full, "jetway_requests_total") == {"overloaded": 1}
    for task in (runs, *waits):
        assert not task.done()
        task.cancel()
