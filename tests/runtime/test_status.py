import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import grpc
import pytest

from jetway.runtime import cli
from jetway.runtime.admin_client import Gateway
from jetway.runtime.errors import Unavailable
from jetway.runtime.status import as_json, as_text, show, watch
from jetway.v1 import admin_pb2, admin_pb2_grpc, common_pb2, scheduler_pb2
from tests.support.certificates import Pair, authority, signed

ENGINE = common_pb2.EngineDescription(
    kind="simulated", block_size=32, block_bytes=3 << 19, num_device_blocks=512, num_host_blocks=256, max_num_seqs=64
)
STATUS = admin_pb2.StatusResponse(
    version="0.1.0",
    model="tiny",
    uptime_s=3723.9,
    num_live_requests=5,
    roles=[
        admin_pb2.RoleStatus(role="executor", pid=4212, epoch=4, num_restarts=1, uptime_s=61, rank_pids=[4212, 93]),
        admin_pb2.RoleStatus(role="gateway", pid=77, epoch=3, uptime_s=3724),
    ],
    scheduler=scheduler_pb2.StatsResponse(
        engine=ENGINE,
        num_running=3,
        max_num_seqs=8,
        num_waiting=14,
        num_free_device_blocks=500,
        num_free_host_blocks=250,
        num_steps=100,
        executor_attached=True,
        last_step_ago_s=0.04,
        last_step_elapsed_s=0.0125,
        steps_per_s=80,
        sampled_tokens_per_s=240.5,
        num_computed_tokens=4000,
        num_sampled_tokens=900,
        num_recomputed_tokens=64,
        num_prompt_tokens=3000,
        num_cached_tokens=96,
        num_copied_out_blocks=20,
        num_copied_in_blocks=18,
        copied_out_s=0.0075,
        copied_in_s=0.005,
        preemptions=[
            scheduler_pb2.PreemptionCount(reason="priority", mode="swap", count=7),
            scheduler_pb2.PreemptionCount(reason="kv_full", mode="recompute", count=1),
        ],
        classes=[
            scheduler_pb2.ClassStats(
                name="interactive",
                level=1,
                weight=2.5,
                num_running=3,
                max_running=8,
                max_queued_requests=1024,
                expected_wait_s=0.04,
                default_deadline_s=30,
            ),
            scheduler_pb2.ClassStats(
                name="batch",
                level=3,
                weight=1,
                num_queued=12,
                num_queued_requests=6,
                num_displaced=2,
                max_queued_requests=1024,
                num_queued_tokens=24000,
                oldest_wait_s=61.25,
            ),
        ],
        rejections={"max_queued_requests": 4, "invalid": 1},
        served_tokens={"acme": 600, "": 300},
        blocked={3: "every slot is taken by an equal or better level", 0: "the token budget is spent"},
    ),
)
TEXT = """\
jetway 0.1.0 · tiny · up 1:02:03 · 5 live requests

ROLE            PID  EPOCH  RESTARTS   UPTIME
executor       4212      4         1  0:01:01
  rank 1 of 2    93      -         -        -
gateway          77      3         0  1:02:04

CLASS        LEVEL  WEIGHT  RUNNING  DISPLACED  QUEUED REQUESTS  QUEUED TOKENS  OLDEST WAIT  EXPECTED WAIT  DEADLINE
interactive      1     2.5   3 of 8          0        0 of 1024              0            -          0.0 s      30 s
batch            3       1        0          2        6 of 1024          24000       61.2 s              -         -

engine       simulated, blocks of 32 tokens and 1536KiB
progress     80.0 steps/s, 240.5 tokens/s
             last step 0.0 s ago, in 0.013 s
slots        3 of 8 taken
waiting      14 sequences, 2 of them displaced
device pool  12 of 512 blocks held
host pool    6 of 256 blocks held
swapped      20 blocks out, 18 in, 0.013 s
prompts      3000 tokens, 96 of them cached
tokens       4000 computed, 900 sampled, 64 recomputed, in 100 steps
preempted    7 for priority, by swap
             1 for kv_full, by recompute
refused      1 for invalid
             4 for max_queued_requests
tenants      (none): 300 tokens sampled
             acme: 600 tokens sampled
blocked      aged lane: the token budget is spent
             level 3: every slot is taken by an equal or better level
"""


class Admin(admin_pb2_grpc.AdminServicer):
    def Drain(self, request: admin_pb2.DrainRequest, context: grpc.ServicerContext) -> admin_pb2.DrainResponse:
        raise NotImplementedError

    def Status(self, request: admin_pb2.StatusRequest, context: grpc.ServicerContext) -> admin_pb2.StatusResponse:
        authorization = dict(context.invocation_metadata()).get("authorization")
        if authorization not in (None, "Bearer sk-admin"):
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "this API key is not known here")
        return STATUS


@contextmanager
def listening(*, admin: bool = True, pair: Pair | None = None) -> Iterator[str]:
    """A gRPC server, and its address."""
    server = grpc.server(ThreadPoolExecutor(1))
    if admin:
        admin_pb2_grpc.add_AdminServicer_to_server(Admin(), server)
    if pair is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        credentials = grpc.ssl_server_credentials([(pair.key.read_bytes(), pair.certificate.read_bytes())])
        port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def test_text_shows_queues_pools_preemptions_and_who_is_blocked() -> None:
    assert as_text(STATUS) + "\n" == TEXT


def test_text_says_when_the_scheduler_is_gone() -> None:
    alone = admin_pb2.StatusResponse(version="0.1.0", model="tiny")
    assert as_text(alone) == "jetway 0.1.0 · tiny · up 0:00:00 · 0 live requests\nthe scheduler does not answer"


def test_text_says_when_work_waits_for_a_step() -> None:
    stats = scheduler_pb2.StatsResponse(seconds_since_step=12.34)
    text = as_text(admin_pb2.StatusResponse(scheduler=stats))
    assert (
        "progress     0.0 steps/s, 0.0 tokens/s\n"
        "             there is no executor\n"
        "             work has waited for a step for 12.3 s\n"
    ) in text


def test_json_is_one_line_of_every_figure() -> None:
    assert "\n" not in as_json(STATUS)
    status = json.loads(as_json(STATUS))
    assert (status["model"], status["num_live_requests"]) == ("tiny", 5)
    assert status["scheduler"]["classes"][1]["num_queued"] == 12
    assert status["scheduler"]["num_recomputed_tokens"] == "64"  # protobuf's JSON: 64 bits are a string


def test_the_command_asks_the_address(capsys: pytest.CaptureFixture[str]) -> None:
    with listening() as address:
        assert cli.main(["status", "--address", address]) == 0
        assert capsys.readouterr().out == TEXT
        assert cli.main(["status", "--address", address, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["model"] == "tiny"


def test_watching_shows_it_again_until_ctrl_c(capsys: pytest.CaptureFixture[str]) -> None:
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    with listening() as address:
        watch(Gateway(address), lambda status: status.model, 0.5, sleep)
    assert capsys.readouterr().out == "tiny\n" * 3
    assert pauses == [0.5] * 3


def test_watching_outlives_a_gateway(capsys: pytest.CaptureFixture[str]) -> None:
    """But needs one to begin with."""
    answers = [STATUS, Unavailable("no gateway"), STATUS]
    gateway = Mock(status=Mock(side_effect=answers))

    def sleep(seconds: float) -> None:
        if gateway.status.call_count == len(answers):
            raise KeyboardInterrupt

    watch(gateway, lambda status: status.model, 0.5, sleep)
    assert capsys.readouterr() == ("tiny\n" * 2, "no gateway\n")
    with pytest.raises(Unavailable, match="no gateway"):
        watch(Mock(status=Mock(side_effect=answers[1])), lambda status: status.model, 0.5, sleep)


def test_nothing_that_answers_is_one_line_and_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    with listening() as address:
        pass
    assert cli.main(["status", "--address", address]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"jetway: no Jetway gateway answers at {address} (UNAVAILABLE: ")
    assert err.count("\n") == 1


def test_the_key_is_the_environments(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with listening() as address:
        monkeypatch.setenv("JETWAY_API_KEY", "sk-admin")
        assert cli.main(["status", "--address", address]) == 0
        monkeypatch.setenv("JETWAY_API_KEY", "sk-other")
        assert cli.main(["status", "--address", address]) == 2
    assert "refuses JETWAY_API_KEY (UNAUTHENTICATED: this API key is not known here)" in capsys.readouterr().err


def test_a_server_with_a_certificate_is_asked_over_tls(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    ca = authority(tmp_path, "ca")
    with listening(pair=signed(ca, tmp_path, "server")) as address:
        assert cli.main(["status", "--address", address, "--tls-ca", str(ca.certificate)]) == 0
        assert capsys.readouterr().out == TEXT
        assert cli.main(["status", "--address", address]) == 1
    assert cli.main(["status", "--address", address, "--tls-ca", "nowhere.pem"]) == 2
    assert "cannot read nowhere.pem: No such file" in capsys.readouterr().err


def test_another_server_is_named_as_such() -> None:
    with listening(admin=False) as address, pytest.raises(Unavailable, match="no Jetway gateway .*UNIMPLEMENTED"):
        show(Gateway(address), as_text)
