"""Both servers over TLS, asked by real clients."""

import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import openai
import pytest

from jetway.client import AsyncClient, Tls, Unavailable
from jetway.runtime.config import GatewayConfig
from jetway.runtime.errors import ConfigError
from jetway.runtime.gateway.app import Gateway
from jetway.runtime.gateway.tls import load_tls
from tests.support.certificates import Pair, authority, signed
from tests.support.fake_scheduler import LENGTH, FakeScheduler, answering
from tests.support.gateway import running_gateway


class Files(NamedTuple):
    ca: Pair
    server: Pair
    client: Pair
    stranger: Pair  # signed by an authority of its own

    @property
    def settings(self) -> dict[str, Any]:
        return {"tls_certificate": str(self.server.certificate), "tls_key": str(self.server.key)}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    directory = tmp_path_factory.mktemp("certificates")
    ca, other = authority(directory, "ca"), authority(directory, "other")
    return Files(
        ca, signed(ca, directory, "server"), signed(ca, directory, "client"), signed(other, directory, "stranger")
    )


@pytest.fixture
def scheduler(scheduler: FakeScheduler) -> FakeScheduler:
    scheduler.script = answering([5], reason=LENGTH)
    return scheduler


@pytest.fixture
async def tls(engine_dir: Path, scheduler: FakeScheduler, files: Files) -> AsyncIterator[Gateway]:
    """A gateway with a certificate."""
    async with running_gateway(engine_dir, scheduler.address, **files.settings) as gateway:
        yield gateway


@pytest.fixture
async def mutual(engine_dir: Path, scheduler: FakeScheduler, files: Files) -> AsyncIterator[Gateway]:
    """A gateway that asks clients for certificates too."""
    settings = files.settings | {"tls_client_ca": str(files.ca.certificate)}
    async with running_gateway(engine_dir, scheduler.address, **settings) as gateway:
        yield gateway


async def by_openai(gateway: Gateway, trusted: Pair, shown: Pair | None = None) -> str:
    """What a completion says, asked by the official client."""
    context = ssl.create_default_context(cafile=trusted.certificate)
    if shown is not None:
        context.load_cert_chain(shown.certificate, shown.key)
    async with (
        openai.DefaultAsyncHttpxClient(verify=context) as http,
        openai.AsyncOpenAI(
            base_url=f"https://127.0.0.1:{gateway.http_port}/v1", api_key="none", max_retries=0, http_client=http
        ) as client,
    ):
        return (await client.completions.create(model="tiny", prompt="a")).choices[0].finish_reason


async def by_grpc(gateway: Gateway, tls: Tls | None) -> str:
    async with AsyncClient(f"127.0.0.1:{gateway.grpc_port}", tls=tls) as client:
        return (await client.generate("a", timeout_s=10.0)).choices[0].finish_reason


async def test_clients_that_know_the_authority_are_served(tls: Gateway, files: Files) -> None:
    assert await by_openai(tls, files.ca) == "length"
    assert await by_grpc(tls, Tls(ca=files.ca.certificate)) == "length"


async def test_clients_that_do_not_know_it_or_speak_in_the_clear_are_not(tls: Gateway, files: Files) -> None:
    with pytest.raises(openai.APIConnectionError):
        await by_openai(tls, files.stranger)
    for wrong in (None, Tls(ca=files.stranger.certificate)):
        with pytest.raises(Unavailable):
            await by_grpc(tls, wrong)


async def test_with_a_client_authority_only_its_clients_are_served(mutual: Gateway, files: Files) -> None:
    ca = files.ca.certificate
    assert await by_openai(mutual, files.ca, files.client) == "length"
    assert await by_grpc(mutual, Tls(ca=ca, certificate=files.client.certificate, key=files.client.key)) == "length"
    for shown in (None, files.stranger):
        with pytest.raises(openai.APIConnectionError):
            await by_openai(mutual, files.ca, shown)
    for refused in (Tls(ca=ca), Tls(ca=ca, certificate=files.stranger.certificate, key=files.stranger.key)):
        with pytest.raises(Unavailable):
            await by_grpc(mutual, refused)


def test_files_that_are_no_good_are_config_errors_that_name_them(files: Files, tmp_path: Path) -> None:
    config = GatewayConfig(**files.settings)
    nothing = tmp_path / "nothing.pem"
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("no PEM")

    for changed, message in {
        replace(config, tls_certificate=str(nothing)): f"cannot read tls_certificate {nothing}: No such file",
        replace(config, tls_key=str(nothing)): f"cannot read tls_key {nothing}: No such file",
        replace(config, tls_client_ca=str(tmp_path)): f"cannot read tls_client_ca {tmp_path}: Is a directory",
        replace(config, tls_certificate=str(garbage)): f"tls_certificate {garbage} holds no certificate",
        replace(config, tls_client_ca=str(garbage)): f"tls_client_ca {garbage} holds no certificate",
        replace(config, tls_key=str(garbage)): f"tls_key {garbage} holds no private key",
        replace(config, tls_key=str(files.client.key)): f"tls_key {files.client.key} is not the key of",
    }.items():
        with pytest.raises(ConfigError, match=message):
            load_tls(changed)


def test_without_a_certificate_there_is_no_tls() -> None:
    assert load_tls(GatewayConfig()) is None
