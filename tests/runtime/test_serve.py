"""`jetway serve` whole: four processes around a simulated engine, with clients at the edge."""

import json
import signal
import socket
from dataclasses import replace
from pathlib import Path

import grpc
import openai
import pytest

from jetway.runtime import cli
from jetway.runtime.config import ExecutorConfig, SchedulerConfig, ServeConfig
from jetway.runtime.errors import ConfigError
from jetway.runtime.launcher import ROLES
from jetway.runtime.serve import load_engine, make_scheduler
from jetway.v1.inference_pb2 import GenerateRequest
from jetway.v1.inference_pb2_grpc import InferenceStub
from tests.support.processes import Running
from tests.support.scheduling import make_engine
from tests.support.serving import READY, process_of, serving
from tests.support.tokenizers import byte_level, write_engine


@pytest.fixture
def engine_dir(tmp_path: Path) -> Path:
    directory = tmp_path / "engine"
    directory.mkdir()
    return write_engine(directory, byte_level())


def openai_client(running: Running) -> openai.OpenAI:
    url = running.facts("openai")[-1]
    return openai.OpenAI(base_url=url, api_key="none", max_retries=0)


def test_both_protocols_answer_and_a_drain_lets_a_stream_end(engine_dir: Path) -> None:
    with serving(engine_dir, model_name="mine") as running:
        running.wait_for(READY)
        assert running.facts("engine") == ["simulated"]
        with grpc.insecure_channel(running.facts("grpc")[0]) as channel:
            answer = InferenceStub(channel).Generate(GenerateRequest(text="hi", max_tokens=5))
        assert (answer.model, answer.usage.completion_tokens) == ("mine", 5)
        with openai_client(running) as client:
            stream = client.completions.create(
                model="mine", prompt="hi", max_tokens=400, stream=True, stream_options={"include_usage": True}
            )
            next(stream)
            running.send_signal(signal.SIGTERM)
            *_, last = stream
        assert last.usage is not None
        assert last.usage.completion_tokens == 400
        assert running.end().status == 0


def test_classes_of_a_file_are_served_and_shown(engine_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = engine_dir.parent / "serve.yaml"
    file.write_text(
        "classes:\n  standard: {level: 2}\n  urgent: {level: 1, max_running: 1}\ntenants: {acme: {weight: 2}}\n"
    )
    with serving(engine_dir, "--config", file) as running:
        running.wait_for(READY)
        (address,) = running.facts("grpc")
        with grpc.insecure_channel(address) as channel:
            InferenceStub(channel).Generate(GenerateRequest(text="hi", max_tokens=5))
        assert cli.main(["status", "--address", address, "--json"]) == 0
        status = json.loads(capsys.readouterr().out)
        assert {each["role"]: each["pid"] for each in status["roles"]} == {
            role: process_of(running, role).pid for role in ROLES
        }
        assert cli.main(["drain", address]) == 0
        assert running.end().status == 0
    assert [(each["name"], each["level"]) for each in status["scheduler"]["classes"]] == [
        ("standard", 2),
        ("urgent", 1),
    ]
    assert status["scheduler"]["num_sampled_tokens"] == "5"
    assert (status["scheduler"]["executor_attached"], status["scheduler"]["seconds_since_step"]) == (True, 0.0)
    assert status["scheduler"]["engine"]["num_host_blocks"] == 2**30 // 2048  # swapping is on by default


def test_in_json_every_line_is_an_object(engine_dir: Path) -> None:
    with serving(engine_dir, log_format="json") as running:
        running.wait_for(READY)
        said = [json.loads(line)["message"].split() for line in running.out.splitlines()]
        (address,) = [words[1] for words in said if words[0] == "grpc"]
        with grpc.insecure_channel(address) as channel:
            InferenceStub(channel).Generate(GenerateRequest(text="secret", max_tokens=5, request_id="mine"))
        running.send_signal(signal.SIGTERM)
        status, out, err = running.end()
    assert status == 0
    lines = [json.loads(line) for line in err.splitlines()]
    assert {line["role"] for line in lines if line.get("request_id") == "mine"} == {"gateway"}
    assert {json.loads(line)["role"] for line in out.splitlines()} == {"supervisor"}
    assert "secret" not in err


@pytest.mark.parametrize(("role", "number"), [("executor", signal.SIGSTOP), ("scheduler", signal.SIGKILL)])
def test_a_stream_outlives_what_computes_it(engine_dir: Path, role: str, number: int) -> None:
    """Killed, or hung: it is replaced, and the stream goes on as if nothing had been. The other pairs: tests/chaos."""
    with serving(engine_dir, hang_timeout_s="3", simulated_step_s="0.005") as running:
        running.wait_for(READY)
        process = process_of(running, role)
        with openai_client(running) as client:
            (model,) = client.models.list().data
            stream = client.completions.create(model=model.id, prompt="hi", max_tokens=200, temperature=0, stream=True)
            texts = [next(stream).choices[0].text]
            process.send_signal(number)
            texts += [chunk.choices[0].text for chunk in stream]
            assert not process.is_running()
            undisturbed = client.completions.create(model=model.id, prompt="hi", max_tokens=200, temperature=0)
        assert "".join(texts) == undisturbed.choices[0].text
        running.send_signal(signal.SIGTERM)
        assert running.end().status == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_gateway_is_replaced(engine_dir: Path, number: int) -> None:
    with serving(engine_dir, hang_timeout_s="3") as running:
        running.wait_for(READY)
        process_of(running, "gateway").send_signal(number)
        running.wait_for("  grpc ", times=2)
        with openai_client(running) as client:
            (model,) = client.models.list().data
            answer = client.completions.create(model=model.id, prompt="hi", max_tokens=5)
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 5
        running.send_signal(signal.SIGTERM)
        assert running.end().status == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"num_device_blocks": "0"},
            "num_device_blocks must be at least 1, not 0 (environment JETWAY_NUM_DEVICE_BLOCKS)",
        ),
        ({"kv_cache_memory": "1"}, "kv_cache_memory must hold one block of 2048 bytes, not 1"),
        ({"max_num_seqs": "5"}, "max_num_seqs is 5, but the engine was built for 4"),
        ({"num_device_blocks": "9" * 12}, "999999999999 device and 524288 host blocks need"),
        ({"host": "ü..x", "insecure": "true"}, "the gateway cannot listen on 'ü..x': it is no host name"),
        (
            {"host": "192.0.2.1", "insecure": "true"},
            "the gateway cannot listen on 192.0.2.1 port 0: Cannot assign requested address",
        ),
        ({"host": "0.0.0.0"}, "host 0.0.0.0 lets other machines in, and nothing says who may call: give keys or"),
        (
            {"tls_certificate": "no.pem", "tls_key": "no.key"},
            "cannot read tls_certificate no.pem: No such file or directory",
        ),
        ({"python": "/bin/false"}, "/bin/false cannot import jetway: install jetway-llm in that interpreter's"),
    ],
)
def test_a_wrong_setting_is_one_line(engine_dir: Path, settings: dict[str, str], message: str) -> None:
    with serving(engine_dir, **settings) as running:
        status, out, err = running.end()
    assert (status, out) == (2, "")  # nothing was started
    assert err.startswith(f"jetway: {message}")
    assert err.count("\n") == 1


def test_a_port_that_is_taken_is_named(engine_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with serving(engine_dir, port=str(port)) as running:
            status, out, err = running.end()
    assert (status, out) == (2, "")
    assert f"cannot listen on 127.0.0.1 port {port}: Address already in use" in err


def test_a_simulated_engine_has_the_shape_of_the_directory(engine_dir: Path) -> None:
    executor = ExecutorConfig(backend="simulated", kv_cache_memory=1 << 20, host_cache_memory=1 << 16)
    description = load_engine(ServeConfig(engine=engine_dir, executor=executor)).describe()
    # 2 (K and V) x 8 x 4 bytes a token, 32 tokens a block: 2 KiB a block.
    assert (description.block_bytes, description.num_device_blocks, description.num_host_blocks) == (2048, 512, 32)
    assert (description.max_num_seqs, description.max_num_batched_tokens, description.max_seq_len) == (4, 256, 512)


def test_a_directory_that_is_no_engine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="config.json: does not exist"):
        load_engine(ServeConfig(engine=tmp_path))


def test_an_engine_directory_without_its_model_is_refused(engine_dir: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be loaded"):
        load_engine(ServeConfig(engine=engine_dir))


def test_limits_default_to_what_the_engine_allows() -> None:
    engine = make_engine(max_num_seqs=8)
    make_scheduler(SchedulerConfig(), engine).check()
    with pytest.raises(ConfigError, match="max_num_batched_tokens is 11; it must be at least 12"):
        make_scheduler(SchedulerConfig(max_num_batched_tokens=11), engine)
    with pytest.raises(ConfigError, match="max_num_seqs is 9, but the engine was built for 8"):
        make_scheduler(SchedulerConfig(max_num_seqs=9), engine)
    with pytest.raises(ConfigError, match="the device pool holds no block"):
        make_scheduler(SchedulerConfig(), replace(engine, num_device_blocks=0))
