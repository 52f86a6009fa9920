"""The model repository that `jetway triton-repo` writes, read as Triton reads it."""

import os
from pathlib import Path

import pytest
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.text_format import Parse
from tritonclient.grpc.model_config_pb2 import ModelConfig

from jetway.runtime import cli
from jetway.runtime.gateway.kserve import describe
from jetway.runtime.gateway.kserve.catalog import Model
from jetway.runtime.gateway.kserve.dialects.llmapi import LlmapiDialect
from jetway.runtime.gateway.kserve.dialects.text import TextDialect

PROGRAMS = Path(__file__).parents[3] / "runtime" / "triton"


@pytest.mark.parametrize("dialect", ["inflight", "llmapi"])
def test_upstreams_names_with_the_tensors_that_the_gateway_takes(tmp_path: Path, dialect: str) -> None:
    status = cli.main(["triton-repo", "--output", str(tmp_path / "repo"), "--kserve-dialect", dialect])

    assert status == 0
    assert sorted(os.listdir(tmp_path / "repo")) == ["ensemble", "tensorrt_llm", "tensorrt_llm_bls"]
    for name in ("ensemble", "tensorrt_llm"):
        directory = tmp_path / "repo" / name
        for program in ("model.py", "exchange.py", "over_http.py", "over_grpc.py"):
            assert (directory / "1" / program).read_bytes() == (PROGRAMS / program).read_bytes()
        config = Parse((directory / "config.pbtxt").read_text(), ModelConfig())
        assert (config.name, config.backend, config.model_transaction_policy.decoupled) == (name, "python", True)
        assert config.parameters["jetway_url"].string_value == "http://127.0.0.1:8000"
        assert config.max_batch_size == (0 if (name, dialect) == ("tensorrt_llm", "llmapi") else 1)
        if name == "ensemble" or dialect == "llmapi":
            model = Model(name, TextDialect() if name == "ensemble" else LlmapiDialect())
            own = ParseDict(describe.config(model, {"standard": 1}), ModelConfig())
            assert [MessageToDict(each) for each in config.input] == [MessageToDict(each) for each in own.input]
            assert [MessageToDict(each) for each in config.output] == [MessageToDict(each) for each in own.output]


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("127.0.0.1:8000", "like http://HOST:PORT or grpc://HOST:PORT"),
        ("ftp://host", "like http://HOST:PORT or grpc://HOST:PORT"),
        ("http://", "like http://HOST:PORT or grpc://HOST:PORT"),
        ("http://host:port", "like http://HOST:PORT or grpc://HOST:PORT"),
        ("http://user:word@host:1", "like http://HOST:PORT or grpc://HOST:PORT"),
        ("http://host:1?key=word", "like http://HOST:PORT or grpc://HOST:PORT"),
        ("http://ho st:1", "like http://HOST:PORT or grpc://HOST:PORT"),
        ("grpc://host", "grpc://HOST:PORT for gRPC"),
        ("grpcs://host:1/path", "grpcs://HOST:PORT for gRPC"),
    ],
)
def test_a_url_that_no_model_could_use_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], url: str, wanted: str
) -> None:
    assert cli.main(["triton-repo", "--output", str(tmp_path / "repo"), "--url", url]) == 2
    assert f"argument --url: must be {wanted}, not {url!r}" in capsys.readouterr().err
    assert not (tmp_path / "repo").exists()


def test_a_repository_is_renewed_and_one_that_cannot_be_written_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for url in ("http://one:1/behind", "grpc://two:2"):
        assert cli.main(["triton-repo", "--output", str(tmp_path), "--url", url]) == 0
    assert "grpc://two:2" in (tmp_path / "ensemble" / "config.pbtxt").read_text()
    (tmp_path / "file").touch()
    assert cli.main(["triton-repo", "--output", str(tmp_path / "file")]) == 1
    assert "file cannot be written: " in capsys.readouterr().err
