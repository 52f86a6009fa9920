"""`jetway serve` of the CPU engine with its layers in two processes: the tokens are Hugging Face's."""

import asyncio
import os
import signal
from pathlib import Path

import grpc
import pytest

from jetway.v1 import admin_pb2, admin_pb2_grpc, common_pb2, inference_pb2
from tests.chaos.load import Clients, Progress, grpc_address
from tests.support.mpi import needs_mpi
from tests.support.processes import Running, is_alive
from tests.support.serving import READY, serving
from tests.support.trt_references import Reference


async def rank_pids(running: Running) -> list[int]:
    async with grpc.aio.insecure_channel(grpc_address(running)) as channel:
        status = await admin_pb2_grpc.AdminStub(channel).Status(admin_pb2.StatusRequest())
    (executor,) = (each for each in status.roles if each.role == "executor")
    return [*executor.rank_pids]


def request(reference: Reference) -> inference_pb2.GenerateRequest:
    return inference_pb2.GenerateRequest(
        token_ids=inference_pb2.TokenIds(ids=reference.prompt),
        max_tokens=len(reference.tokens),
        n=1,
        sampling=common_pb2.SamplingParams(temperature=0.0, ignore_eos=True),
    )


@needs_mpi
@pytest.mark.timeout(90)
async def test_a_killed_rank_changes_no_token(
    tiny_engine_directory: Path, tiny_references: list[Reference], tmp_path: Path
) -> None:
    engine_dir = tmp_path / "engine"
    engine_dir.symlink_to(tiny_engine_directory)
    total = sum(len(each.tokens) for each in tiny_references)
    with serving(engine_dir, backend="auto", pp_size="2", num_device_blocks="64", threads="1") as running:
        running.wait_for(READY)
        assert running.facts("ranks") == ["2"]
        address, progress = grpc_address(running), Progress()
        before = await rank_pids(running)

        async def kill() -> None:
            await progress.reach(total // 3)
            os.kill(before[1], signal.SIGKILL)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(kill())
            asking = tasks.create_task(Clients(lambda: address, progress).ask_all([*map(request, tiny_references)]))
        after = await rank_pids(running)
        running.send_signal(signal.SIGTERM)
        ended = running.end()
        assert ended.status == 0, ended.out[-2000:]
    assert f"the executor lost rank 1 (pid {before[1]})" in ended.out
    assert [answer.tokens for answer in asking.result()] == [(tuple(each.tokens),) for each in tiny_references]
    assert (len(before), len(after)) == (2, 2)
    assert not any(is_alive(pid) for pid in [*before, *after])
