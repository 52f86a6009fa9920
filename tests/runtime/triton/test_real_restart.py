"""All of `jetway serve` behind a real Triton server, killed in part and whole while answers stream through."""

import asyncio
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from tokenizers import Tokenizer
from tritonclient.grpc import aio
from tritonclient.utils import InferenceServerException

from tests.support.processes import Running
from tests.support.serving import JETWAY, READY, process_of, serving
from tests.support.tokenizers import write_engine
from tests.support.triton import TRUE, request_stream, token_inputs
from tests.support.triton_server import TritonBefore

pytestmark = pytest.mark.timeout(90)  # the first test starts the server

NUM_STREAMS, NUM_TOKENS = 12, 40


def settings(triton: TritonBefore) -> dict[str, str]:
    """A pool too small for all, and steps long enough to be met in the middle."""
    return {
        "backend": "simulated", "simulated_step_s": "0.005", "num_device_blocks": "24",
        "port": str(triton.jetway_http_port), "grpc_port": str(triton.jetway_grpc_port),
    }  # fmt: skip


class Answers:
    """Those of all streams as far as they have come: token ids, and what cut them short."""

    def __init__(self, client: aio.InferenceServerClient) -> None:
        self.tokens: list[list[int]] = [[] for _ in range(NUM_STREAMS)]
        self.errors: list[InferenceServerException] = []
        self._client = client
        self._progress = asyncio.Event()

    async def run(self) -> None:
        await asyncio.gather(*map(self._stream, range(NUM_STREAMS)))

    async def reach(self, condition: Callable[[Sequence[int]], bool]) -> None:
        """Return once it holds for the streams' lengths."""
        while not condition([len(tokens) for tokens in self.tokens]):
            self._progress.clear()
            await self._progress.wait()

    async def _stream(self, number: int) -> None:
        inputs = token_inputs([number, *range(30)], NUM_TOKENS, streaming=TRUE)
        answers: Any = self._client.stream_infer(
            request_stream([{"model_name": "tensorrt_llm", "inputs": inputs, "request_id": str(number)}])
        )
        async for result, error in answers:
            if error is None:
                self.tokens[number] += result.as_numpy("output_ids")[0][0].tolist()
            else:
                self.errors.append(error)
            self._progress.set()


@pytest.mark.parametrize("triton", ["http"], indirect=True)  # test_real_triton.py restarts a gateway under both
async def test_jetway_restarts_whole_and_in_part(
    client: aio.InferenceServerClient, triton: TritonBefore, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    """A lost executor is not seen; a lost Jetway ends what runs, and serves again once it is back, without a word to
    Triton.
    """
    undisturbed, over_a_loss, cut, again = (Answers(client) for _ in range(4))
    engine, runtime_parent = tmp_path / "engine", tmp_path / "run"
    for directory in (engine, runtime_parent):
        directory.mkdir()
    engine_dir = write_engine(engine, tokenizer)
    with Running.start([JETWAY, "serve", engine_dir], runtime_parent, **settings(triton)) as running:
        await asyncio.to_thread(running.wait_for, READY)
        await undisturbed.run()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(over_a_loss.run())
            await over_a_loss.reach(lambda lengths: sum(lengths) > NUM_STREAMS * NUM_TOKENS // 3)
            process_of(running, "executor").kill()
        assert (over_a_loss.tokens, over_a_loss.errors) == (undisturbed.tokens, [])

        roles = psutil.Process(running.pid).children()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(cut.run())
            await cut.reach(lambda lengths: max(lengths) > NUM_TOKENS // 3)
            running.send_signal(signal.SIGKILL)
        await asyncio.to_thread(psutil.wait_procs, roles)
    assert len(cut.errors) == sum(len(tokens) < NUM_TOKENS for tokens in cut.tokens) > 0
    with serving(engine_dir, **settings(triton)) as running:
        await asyncio.to_thread(running.wait_for, READY)
        await again.run()
        running.send_signal(signal.SIGTERM)
        assert (await asyncio.to_thread(running.end)).status == 0
    assert (again.tokens, again.errors) == (undisturbed.tokens, [])
    assert {len(tokens) for tokens in undisturbed.tokens} == {NUM_TOKENS}
