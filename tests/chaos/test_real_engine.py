"""kill -9 of the executor while the real model generates: the tokens are Hugging Face's."""

import asyncio
import json
import signal
from pathlib import Path

import pytest

from jetway.v1 import common_pb2, inference_pb2
from tests.chaos.load import Clients, Progress, grpc_address
from tests.conftest import ROOT
from tests.support.serving import READY, process_of, serving

STORED = [json.loads(line) for line in (ROOT / "tests/data/greedy_smollm2.jsonl").read_text().splitlines()]
ASKED = STORED[4:16]  # prompts of middling length, with margins that no batch moves


@pytest.mark.timeout(180)
async def test_a_killed_executor_changes_no_token(demo_engine: Path, tmp_path: Path) -> None:
    greedy = common_pb2.SamplingParams(temperature=0.0, ignore_eos=True)
    requests = [
        inference_pb2.GenerateRequest(
            token_ids=inference_pb2.TokenIds(ids=each["prompt_ids"]),
            max_tokens=len(each["output_ids"]),
            n=1,
            sampling=greedy,
        )
        for each in ASKED
    ]
    total = sum(len(each["output_ids"]) for each in ASKED)
    engine_dir = tmp_path / "engine"
    engine_dir.symlink_to(demo_engine)
    with serving(engine_dir, backend="auto", num_device_blocks="64") as running:
        running.wait_for(READY)
        address, progress = grpc_address(running), Progress()

        async def kill() -> None:
            await progress.reach(total // 3)
            process_of(running, "executor").kill()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(kill())
            asking = tasks.create_task(Clients(lambda: address, progress).ask_all(requests))
        running.send_signal(signal.SIGTERM)
        ended = running.end()
        assert ended.status == 0, ended.out[-2000:]
    assert [answer.tokens for answer in asking.result()] == [(tuple(each["output_ids"]),) for each in ASKED]
