"""Who may call KServe's edges, and in which class."""

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tritonclient.utils import InferenceServerException

from jetway.runtime.gateway.access import OPEN_ACCESS, Access
from jetway.runtime.gateway.auth import ApiKey, KeyRing
from jetway.runtime.gateway.placement import Caller
from tests.support.fake_scheduler import FakeScheduler, accepted, answering
from tests.support.gateway import running_gateway
from tests.support.http import exchange, post, request
from tests.support.triton import client_of, generate, parsed, text_inputs

ASK: dict[str, Any] = {"text_input": "hi", "max_tokens": 8}
KEYS = KeyRing([
    ApiKey("acme", hashlib.sha256(b"secret").hexdigest(), Caller(tenant="acme")),
    ApiKey("beta", hashlib.sha256(b"other").hexdigest(), Caller(tenant="beta", allowed_classes=frozenset(["standard"]))),
])  # fmt: skip
ACCESS = Access(KEYS, OPEN_ACCESS.placer)
ACME, BETA = {"authorization": "Bearer secret"}, {"authorization": "Bearer other"}


async def test_health_is_open_and_everything_else_needs_a_key(engine_dir: Path, scheduler: FakeScheduler) -> None:
    async with running_gateway(engine_dir, scheduler.address, ACCESS) as gateway, client_of(gateway) as triton:
        assert await triton.is_server_ready()
        assert await triton.is_model_ready("ensemble")
        for call in (triton.get_server_metadata, triton.get_model_repository_index):
            with pytest.raises(InferenceServerException) as caught:
                await call()
            assert caught.value.status() == "StatusCode.UNAUTHENTICATED"
        with pytest.raises(InferenceServerException) as caught:
            await triton.infer("ensemble", text_inputs())
        assert caught.value.status() == "StatusCode.UNAUTHENTICATED"
        assert (await triton.get_server_metadata(headers=ACME)).name == "jetway"

        assert (await exchange(gateway.http_port, request("GET", "/v2/health/ready"))).status == 200
        for message in (
            request("GET", "/v2"),
            post("/v2/models/tiny/generate", ASK),
            request("GET", "/v2/models/stats"),
        ):
            answer = await exchange(gateway.http_port, message)
            assert (answer.status, parsed(answer)) == (
                401,
                {"error": "an API key is needed: Authorization: Bearer KEY"},
            )


async def test_the_key_says_the_tenant_and_the_classes(
    engine_dir: Path, scheduler: FakeScheduler, tokenizer: Tokenizer
) -> None:
    scheduler.script = answering(tokenizer.encode("a", add_special_tokens=False).ids)
    async with running_gateway(engine_dir, scheduler.address, ACCESS) as gateway, client_of(gateway) as triton:
        await triton.infer("ensemble", text_inputs(), headers=ACME, priority=1)
        with pytest.raises(InferenceServerException) as caught:
            await triton.infer("ensemble", text_inputs(), headers=BETA, priority=1)
        assert caught.value.status() == "StatusCode.PERMISSION_DENIED"
    add = await scheduler.adds.get()
    assert (add.tenant, add.service_class) == ("acme", "interactive")


async def test_a_class_by_name(engine_dir: Path, scheduler: FakeScheduler, tokenizer: Tokenizer) -> None:
    scheduler.script = answering(tokenizer.encode("a", add_special_tokens=False).ids)
    async with running_gateway(engine_dir, scheduler.address) as gateway, client_of(gateway) as triton:
        await triton.infer("ensemble", text_inputs(), headers={"x-jetway-class": "batch"}, priority=3)
        assert (await generate(gateway, "tiny/generate", ASK, "X-Jetway-Class: batch\r\n")).status == 200
        with pytest.raises(InferenceServerException) as caught:
            await triton.infer("ensemble", text_inputs(), headers={"x-jetway-class": "batch"}, priority=1)
        assert caught.value.message() == "priority (level 1) and the class 'batch' disagree"
    assert [(await scheduler.adds.get()).service_class for _ in range(2)] == ["batch", "batch"]


async def test_nobody_stops_the_requests_of_another_tenant(engine_dir: Path, scheduler: FakeScheduler) -> None:
    scheduler.script = lambda add: [accepted(add.handle)]
    stop = {"input_ids": [0], "input_lengths": 0, "request_output_len": 0, "stop": True, "id": "7"}
    async with running_gateway(engine_dir, scheduler.address, ACCESS) as gateway, client_of(gateway) as triton:
        running = asyncio.ensure_future(triton.infer("ensemble", text_inputs(), request_id="7", headers=ACME))
        handle = (await scheduler.adds.get()).handle
        for authorization in ("Bearer other", "Bearer secret"):
            answer = await generate(gateway, "tensorrt_llm/generate", stop, f"authorization: {authorization}\r\n")
            assert answer.status == 200
            if authorization == "Bearer other":
                assert scheduler.cancels.empty()
        assert await scheduler.cancels.get() == handle
        await running
