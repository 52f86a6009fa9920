"""What clients say and who they are, through the whole stack and into every kind of error: none of it is in the logs."""

import hashlib
import logging
from pathlib import Path
from typing import Any

import grpc
import pytest

from jetway.client import AsyncClient, JetwayError
from jetway.runtime.gateway.access import OPEN_ACCESS, Access
from jetway.runtime.gateway.auth import ApiKey, KeyRing
from jetway.runtime.gateway.placement import Caller
from jetway.v1 import inference_pb2
from tests.support.http import connection, events_of, exchange, post, request
from tests.support.stack import TOKENIZER, Stack, stack
from tests.support.tokenizers import CHAT_TEMPLATE, write_engine

WORD = "zyzzyva"  # of a prompt
KEY, OTHER_KEY = "sk-quokka-1", "sk-quokka-2"
BEARER = f"authorization: Bearer {KEY}\r\n"
MESSAGES: Any = [{"role": "user", "content": WORD}]
HOSTILE = "{% if messages[0].content == 'fail' %}{{ messages[1].content + 1 }}{% endif %}" + CHAT_TEMPLATE
BODIES: list[tuple[str, dict[str, Any]]] = [
    ("/v1/completions", {"prompt": WORD, "max_tokens": 2}),
    ("/v1/completions", {"prompt": WORD, "max_tokens": 2, "stop": WORD, "n": 2}),
    ("/v1/completions", {"prompt": WORD * 10}),  # too long
    ("/v1/completions", {"prompt": WORD * 10_000}),  # far too long
    ("/v1/completions", {"prompt": [WORD, 5]}),
    ("/v1/completions", {"prompt": WORD, "model": WORD}),
    ("/v1/completions", {"prompt": WORD, "temperature": WORD}),
    ("/v1/completions", {"prompt": WORD, "service_tier": WORD}),
    ("/v1/completions", {"prompt": WORD, "tools": [WORD]}),
    ("/v1/completions", {"prompt": f"{WORD}\ud800"}),
    ("/v1/chat/completions", {"messages": MESSAGES}),
    ("/v1/chat/completions", {"messages": [{"role": WORD, "content": WORD}]}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "fail"}, *MESSAGES]}),
]


async def over_http(running: Stack) -> None:
    port = running.gateway.http_port
    await events_of(port, "/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 2}, BEARER)
    for path, body in BODIES:
        await exchange(port, post(path, body, BEARER))
        await exchange(port, post(path, body, f"authorization: Bearer {OTHER_KEY}\r\n"))
    await exchange(port, request("POST", "/v1/completions", f'{{"prompt": "{WORD}"'.encode(), BEARER))
    await exchange(port, request("GET", f"/{WORD}?{KEY}", headers=BEARER))
    async with connection(port) as (reader, writer):
        writer.write(f"{WORD} {KEY}\r\n\r\n".encode())  # no HTTP
        await reader.read()


async def over_grpc(running: Stack) -> None:
    address = f"127.0.0.1:{running.gateway.grpc_port}"
    for key in (KEY, OTHER_KEY):
        async with AsyncClient(address, api_key=key) as client:
            for params in ({"max_tokens": 2}, {"model": WORD}, {"service_class": WORD}, {"stop": [WORD] * 99}):
                for call in (client.generate(WORD, **params), _all(client, **params)):
                    try:
                        await call
                    except JetwayError:
                        pass
    async with grpc.aio.insecure_channel(address) as channel:
        raw: Any = channel.unary_unary("/jetway.v1.Inference/Generate")
        message = inference_pb2.GenerateRequest(text=WORD).SerializeToString()
        for malformed in (message + b"\xff", message.replace(b"z", b"\xff")):
            with pytest.raises(grpc.aio.AioRpcError):
                await raw(malformed, metadata=(("authorization", f"Bearer {KEY}"),))


async def _all(client: AsyncClient, **params: Any) -> None:
    async for _ in client.stream(WORD, **params):
        pass


async def test_neither_prompts_nor_keys_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caller = Caller(tenant="acme")
    access = Access(KeyRing([ApiKey("acme", hashlib.sha256(KEY.encode()).hexdigest(), caller)]), OPEN_ACCESS.placer)
    with caplog.at_level(logging.INFO):
        async with stack(write_engine(tmp_path, TOKENIZER, HOSTILE), access=access) as running:
            await over_http(running)
            await over_grpc(running)

    said = "\n".join(logging.Formatter().format(record) for record in caplog.records)
    assert "cmpl-" in said and "gen-" in said  # calls are logged
    assert WORD not in said
    assert "quokka" not in said
