"""Classes, tenants, deadlines and keys on the wire: what clients say, and what the scheduler is told."""

import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from jetway.runtime.gateway.access import Access
from jetway.runtime.gateway.app import Gateway
from jetway.runtime.gateway.auth import ApiKey, KeyRing
from jetway.runtime.gateway.placement import Caller, Placer, PriorityDialect
from jetway.v1 import admin_pb2, admin_pb2_grpc, common_pb2, inference_pb2, inference_pb2_grpc, scheduler_pb2
from tests.support.fake_scheduler import LENGTH, FakeScheduler, answering
from tests.support.gateway import running_gateway
from tests.support.http import events_of, exchange, post, request

PATH = "/v1/completions"
BODY: dict[str, Any] = {"prompt": "a"}
SECRET = "sk-acme-1"
LIMITED = Caller(tenant="acme", default_class="batch", allowed_classes=frozenset({"standard", "batch"}))
KEYS = KeyRing([ApiKey("acme", hashlib.sha256(SECRET.encode()).hexdigest(), LIMITED)])
LEVELS = {"interactive": 1, "standard": 2, "batch": 3}
KEYED = Access(KEYS, Placer(LEVELS, PriorityDialect.VLLM))
AUTHORIZATION = f"authorization: Bearer {SECRET}\r\n"


@pytest.fixture
def scheduler(scheduler: FakeScheduler) -> FakeScheduler:
    scheduler.script = answering([5], reason=LENGTH)
    return scheduler


@pytest.fixture
async def keyed(engine_dir: Path, scheduler: FakeScheduler) -> AsyncIterator[Gateway]:
    """A gateway with one key, which may not use the class interactive."""
    async with running_gateway(engine_dir, scheduler.address, KEYED) as gateway:
        yield gateway


def told(add: scheduler_pb2.Add) -> tuple[str, int, str]:
    return add.service_class, add.priority, add.tenant


@pytest.mark.parametrize(
    ("headers", "body", "add"),
    [
        ("", {}, ("standard", 0, "")),
        ("X-Jetway-Class: batch\r\n", {}, ("batch", 0, "")),
        ("X-Jetway-Tenant: acme\r\n", {}, ("standard", 0, "acme")),
        ("", {"priority": -3}, ("interactive", -3, "")),
        ("", {"priority": 0}, ("standard", 0, "")),
        ("", {"priority": 7.0}, ("batch", 7, "")),
        ("", {"service_tier": "priority"}, ("interactive", 0, "")),
        ("", {"service_tier": "fast"}, ("interactive", 0, "")),
        ("", {"service_tier": "auto"}, ("standard", 0, "")),
        ("", {"service_tier": "default"}, ("standard", 0, "")),
        ("", {"service_tier": "scale"}, ("standard", 0, "")),
        ("", {"service_tier": "flex"}, ("batch", 0, "")),
        ("X-Jetway-Class: batch\r\n", {"priority": 2, "service_tier": "flex"}, ("batch", 2, "")),
    ],
)
async def test_scheduler_is_told_what_http_clients_mean(
    gateway: Gateway, scheduler: FakeScheduler, headers: str, body: dict[str, Any], add: tuple[str, int, str]
) -> None:
    assert (await exchange(gateway.http_port, post(PATH, BODY | body, headers))).status == 200
    assert told(await scheduler.adds.get()) == add


@pytest.mark.parametrize(
    ("fields", "add"),
    [
        ({}, ("standard", 0, "acme")),
        ({"service_class": "batch"}, ("batch", 0, "acme")),
        ({"priority": -3}, ("interactive", -3, "acme")),
        ({"priority": 4, "service_class": "batch"}, ("batch", 4, "acme")),
    ],
)
async def test_scheduler_is_told_what_grpc_clients_mean(
    stub: Any, scheduler: FakeScheduler, fields: dict[str, Any], add: tuple[str, int, str]
) -> None:
    metadata = (("x-jetway-tenant", "acme"),)
    await stub.Generate(inference_pb2.GenerateRequest(text="a", **fields), metadata=metadata)
    assert told(await scheduler.adds.get()) == add


@pytest.mark.parametrize(
    ("priority", "add"), [(1, ("interactive", -500_000)), (0.5, ("standard", 0)), (0.25, ("batch", 250_000))]
)
async def test_tensorrt_llms_dialect_is_higher_first(
    engine_dir: Path, scheduler: FakeScheduler, priority: float, add: tuple[str, int]
) -> None:
    access = Access(KeyRing([]), Placer(LEVELS, PriorityDialect.TRTLLM))
    async with running_gateway(engine_dir, scheduler.address, access) as gateway:
        await exchange(gateway.http_port, post(PATH, BODY | {"priority": priority}))
    assert told(await scheduler.adds.get()) == (*add, "")


async def test_a_class_deadline_is_as_if_the_call_had_named_it(engine_dir: Path, scheduler: FakeScheduler) -> None:
    """So it holds at the gateway too, where it is kept also while scheduler or executor hangs."""
    access = Access(KeyRing([]), Placer(LEVELS, PriorityDialect.VLLM, deadlines_s={"batch": 2.5}))
    async with running_gateway(engine_dir, scheduler.address, access) as gateway:
        for headers in ("X-Jetway-Class: batch\r\n", "X-Jetway-Class: batch\r\nX-Jetway-Deadline-Ms: 9\r\n", ""):
            await exchange(gateway.http_port, post(PATH, BODY, headers))
    adds = [await scheduler.adds.get() for _ in range(3)]
    assert [add.deadline_ms if add.HasField("deadline_ms") else None for add in adds] == [2500, 9, None]


async def test_deadlines_reach_the_scheduler(gateway: Gateway, stub: Any, scheduler: FakeScheduler) -> None:
    await exchange(gateway.http_port, post(PATH, BODY, "X-Jetway-Deadline-Ms: 1501\r\n"))
    assert (await scheduler.adds.get()).deadline_ms == 1501
    await stub.Generate(inference_pb2.GenerateRequest(text="a", deadline_ms=86_400_000))
    assert (await scheduler.adds.get()).deadline_ms == 86_400_000
    await stub.Generate(inference_pb2.GenerateRequest(text="a"))
    assert not (await scheduler.adds.get()).HasField("deadline_ms")


@pytest.mark.parametrize(
    ("headers", "body", "param", "message"),
    [
        ("", {"priority": -1, "service_tier": "flex"}, "priority", "priority (interactive) and service_tier (batch) disagree"),
        ("X-Jetway-Class: standard\r\n", {"priority": 1}, "X-Jetway-Class", "X-Jetway-Class (standard) and priority (batch) disagree"),
        ("X-Jetway-Class: gold\r\n", {}, "X-Jetway-Class", "X-Jetway-Class asks for class 'gold', which is not served"),
        ("", {"service_tier": "gold"}, "service_tier", "service_tier must be one of priority, fast, auto"),
        ("", {"priority": 0.5}, "priority", "priority must be a whole number"),
        ("", {"priority": 10**300}, "priority", "priority must be a whole number in [-9007199254740992, 9007199254740992], not 1e+300"),
        ("", {"priority": "1"}, "priority", 'priority must be a number, not "1"'),
        ("X-Jetway-Deadline-Ms: 0\r\n", {}, "X-Jetway-Deadline-Ms", "X-Jetway-Deadline-Ms must be in [1, 86400000], not 0"),
        ("X-Jetway-Deadline-Ms: soon\r\n", {}, "X-Jetway-Deadline-Ms", "X-Jetway-Deadline-Ms must be a whole number in [1, 86400000], not 'soon'"),
        ("X-Jetway-Deadline-Ms: -1\r\n", {}, "X-Jetway-Deadline-Ms", "X-Jetway-Deadline-Ms must be a whole number in [1, 86400000], not '-1'"),
        ("", {"max_tokens": 2, "min_tokens": 3}, "min_tokens", "min_tokens must be at most max_tokens, which is 2, not 3"),
        ("X-Jetway-Tenant: two words\r\n", {}, "X-Jetway-Tenant", "X-Jetway-Tenant must have 1 to 128 visible ASCII characters"),
    ],
)  # fmt: skip
async def test_what_is_unknown_or_contradicts_itself_is_refused(
    gateway: Gateway, scheduler: FakeScheduler, headers: str, body: dict[str, Any], param: str, message: str
) -> None:
    answer = await exchange(gateway.http_port, post(PATH, BODY | body, headers))

    error = json.loads(answer.body)["error"]
    assert (answer.status, error["param"]) == (400, param)
    assert error["message"].startswith(message)
    assert scheduler.adds.empty()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"service_class": "gold"}, "service_class"),
        ({"service_class": "standard", "priority": 1}, "service_class"),
        ({"priority": float("nan")}, "priority"),
        ({"priority": float("inf")}, "priority"),
        ({"max_tokens": 2, "sampling": common_pb2.SamplingParams(min_tokens=3)}, "min_tokens"),
        ({"deadline_ms": 0}, "deadline_ms"),
        ({"deadline_ms": 2**64 - 1}, "deadline_ms"),
        ({"request_id": ""}, "request_id"),
        ({"request_id": "two words"}, "request_id"),
        ({"request_id": "x" * 1_000_000}, "request_id"),
    ],
)
async def test_refusals_over_grpc_name_the_field(
    stub: Any, scheduler: FakeScheduler, fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Generate(inference_pb2.GenerateRequest(text="a", **fields))

    metadata: dict[str, Any] = dict(caught.value.trailing_metadata())
    error = common_pb2.Error.FromString(metadata["jetway-error-bin"])
    assert (caught.value.code(), error.param) == (grpc.StatusCode.INVALID_ARGUMENT, param)
    assert len(error.message) < 300
    assert scheduler.adds.empty()


class TestKeys:
    async def test_the_key_says_tenant_and_class(self, keyed: Gateway, scheduler: FakeScheduler) -> None:
        headers = AUTHORIZATION + "X-Jetway-Tenant: somebody-else\r\n"
        assert (await exchange(keyed.http_port, post(PATH, BODY, headers))).status == 200
        assert told(await scheduler.adds.get()) == ("batch", 0, "acme")

    @pytest.mark.parametrize("authorization", ["", "authorization: Bearer sk-acme-2\r\n"])
    @pytest.mark.parametrize("message", [("POST", PATH), ("GET", "/v1/models"), ("GET", "/v1/models/tiny")])
    async def test_without_a_known_key_v1_answers_nothing(
        self, keyed: Gateway, scheduler: FakeScheduler, authorization: str, message: tuple[str, str]
    ) -> None:
        answer = await exchange(keyed.http_port, request(*message, headers=authorization))

        error = json.loads(answer.body)["error"]
        assert (answer.status, error["code"], error["type"]) == (401, "unauthenticated", "authentication_error")
        assert answer.headers["www-authenticate"] == "Bearer"
        assert scheduler.adds.empty()

    @pytest.mark.parametrize("path", ["/health", "/metrics", "/openapi.json"])
    async def test_what_watches_the_server_needs_no_key(self, keyed: Gateway, path: str) -> None:
        assert (await exchange(keyed.http_port, request("GET", path))).status == 200

    @pytest.mark.parametrize(
        ("headers", "body"),
        [("X-Jetway-Class: interactive\r\n", {}), ("", {"priority": -1})],
        ids=["class", "priority"],
    )
    async def test_a_class_that_the_key_may_not_use_is_denied(
        self, keyed: Gateway, scheduler: FakeScheduler, headers: str, body: dict[str, Any]
    ) -> None:
        answer = await exchange(keyed.http_port, post(PATH, BODY | body, AUTHORIZATION + headers))

        error = json.loads(answer.body)["error"]
        assert (answer.status, error["code"]) == (403, "permission_denied")
        assert error["message"] == "this key may not use class interactive"
        assert scheduler.adds.empty()

    async def test_a_service_tier_falls_to_the_keys_best_and_is_echoed(
        self, keyed: Gateway, scheduler: FakeScheduler
    ) -> None:
        body = BODY | {"service_tier": "priority"}
        answer = await exchange(keyed.http_port, post(PATH, body, AUTHORIZATION))

        assert json.loads(answer.body)["service_tier"] == "default"
        assert told(await scheduler.adds.get()) == ("standard", 0, "acme")

    async def test_the_tier_auto_is_the_keys_default_and_is_echoed(
        self, keyed: Gateway, scheduler: FakeScheduler
    ) -> None:
        answer = await exchange(keyed.http_port, post(PATH, BODY | {"service_tier": "auto"}, AUTHORIZATION))

        assert json.loads(answer.body)["service_tier"] == "flex"
        assert told(await scheduler.adds.get()) == ("batch", 0, "acme")

    async def test_grpc_calls_need_a_key_too(self, keyed: Gateway, scheduler: FakeScheduler) -> None:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{keyed.grpc_port}") as channel:
            stub: Any = inference_pb2_grpc.InferenceStub(channel)
            hello = inference_pb2.GenerateRequest(text="a")
            for call in (stub.Generate(hello), stub.ListModels(inference_pb2.ListModelsRequest())):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await call
                assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED

            metadata = (("authorization", f"Bearer {SECRET}"),)
            await stub.Generate(hello, metadata=metadata)
            assert told(await scheduler.adds.get()) == ("batch", 0, "acme")
            denied = inference_pb2.GenerateRequest(text="a", service_class="interactive")
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.Generate(denied, metadata=metadata)
            assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED

    async def test_calls_without_a_known_key_are_counted(self, keyed: Gateway) -> None:
        await exchange(keyed.http_port, post(PATH, BODY))
        await exchange(keyed.http_port, request("GET", "/v1/models"))
        async with grpc.aio.insecure_channel(f"127.0.0.1:{keyed.grpc_port}") as channel:
            for call in (
                inference_pb2_grpc.InferenceStub(channel).Generate(inference_pb2.GenerateRequest(text="a")),
                inference_pb2_grpc.InferenceStub(channel).ListModels(inference_pb2.ListModelsRequest()),
                admin_pb2_grpc.AdminStub(channel).Status(admin_pb2.StatusRequest()),
            ):
                with pytest.raises(grpc.aio.AioRpcError):
                    await call
        metrics = (await exchange(keyed.http_port, request("GET", "/metrics"))).body
        assert b'\njetway_requests_total{outcome="unauthenticated"} 5.0\n' in metrics

    async def test_only_an_admin_key_administers(self, engine_dir: Path, scheduler: FakeScheduler) -> None:
        admin = ApiKey("admin", hashlib.sha256(b"sk-admin").hexdigest(), Caller(tenant="ops", is_admin=True))
        acme = ApiKey("acme", hashlib.sha256(SECRET.encode()).hexdigest(), LIMITED)
        access = Access(KeyRing([acme, admin]), KEYED.placer)
        async with (
            running_gateway(engine_dir, scheduler.address, access) as gateway,
            grpc.aio.insecure_channel(f"127.0.0.1:{gateway.grpc_port}") as channel,
        ):
            stub: Any = admin_pb2_grpc.AdminStub(channel)
            for key, code in ((SECRET, "PERMISSION_DENIED"), ("sk-other", "UNAUTHENTICATED")):
                for call, message in (
                    (stub.Status, admin_pb2.StatusRequest()),
                    (stub.Drain, admin_pb2.DrainRequest()),
                ):
                    with pytest.raises(grpc.aio.AioRpcError) as caught:
                        await call(message, metadata=(("authorization", f"Bearer {key}"),))
                    assert caught.value.code() is grpc.StatusCode[code]
            status = await stub.Status(admin_pb2.StatusRequest(), metadata=(("authorization", "Bearer sk-admin"),))
            assert status.model == "tiny"

    async def test_keys_are_never_logged(
        self, keyed: Gateway, scheduler: FakeScheduler, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level("DEBUG"):
            await exchange(keyed.http_port, post(PATH, BODY, AUTHORIZATION))
            await exchange(keyed.http_port, post(PATH, BODY, "authorization: Bearer sk-acme-2\r\n"))
        assert "cmpl-" in caplog.text
        assert "sk-acme" not in caplog.text


async def test_the_tier_is_echoed_where_the_client_names_one(gateway: Gateway, scheduler: FakeScheduler) -> None:
    tier = {"service_tier": "flex"}

    assert "service_tier" not in json.loads((await exchange(gateway.http_port, post(PATH, BODY))).body)
    assert json.loads((await exchange(gateway.http_port, post(PATH, BODY | tier))).body)["service_tier"] == "flex"
    *chunks, _ = await events_of(gateway.http_port, PATH, BODY | tier)
    assert {json.loads(chunk)["service_tier"] for chunk in chunks} == {"flex"}
