"""Offline throughput through the gRPC boundary, against a direct loop over the same scheduler and engine.

Direct: scheduler, Slots and engine in this process. Over gRPC: scheduler and step loop in this process, the executor
in another, as in production. Runs are interleaved, the first of a pair in turn; both must give the same tokens.
"""

import argparse
import asyncio
import runpy
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from jetway.runtime.executor.base import Engine
from jetway.runtime.executor.client import ExecutorClient
from jetway.runtime.executor.steps import Slots
from jetway.runtime.loop import StepLoop
from jetway.runtime.overlap import FixedOverlap
from jetway.scheduler.events import Event, RequestFinished, TokenSampled
from jetway.scheduler.plan import EngineDescription, StepResult
from jetway.scheduler.request import Request, SamplingParams, SequenceId
from jetway.scheduler.scheduler import Scheduler

from .remote import OpenVino, Pools, executor, scheduler_of

ROOT = Path(__file__).resolve().parent.parent.parent
NUM_DEVICE_BLOCKS = 512
OFFLINE = SamplingParams(temperature=0.0, ignore_eos=True)


@dataclass(frozen=True, slots=True)
class Run:
    """One pass over the workload."""

    elapsed_s: float
    steps_s: float  # of it, inside the executor's steps
    tokens: dict[SequenceId, list[int]]


@dataclass(frozen=True, slots=True)
class Settings:
    num_runs: int
    overlap: int  # plans ahead of results, over gRPC


def read_requests(workload: Path, num_requests: int | None) -> list[Request]:
    jobs = runpy.run_path(str(workload))["offline"]()[:num_requests]
    return [
        Request(id=str(number), prompt=prompt, sampling=OFFLINE, max_tokens=max_tokens)
        for number, (prompt, max_tokens) in enumerate(jobs)
    ]


def scheduler_with(requests: Sequence[Request], description: EngineDescription) -> Scheduler:
    scheduler = scheduler_of(description)
    for request in requests:
        scheduler.add(request, time.monotonic())
    return scheduler


def run_directly(engine: Engine, requests: Sequence[Request]) -> Run:
    scheduler, slots = scheduler_with(requests, engine.describe()), Slots(engine)
    tokens: dict[SequenceId, list[int]] = {}
    steps_s, start = 0.0, time.perf_counter()
    while plan := scheduler.plan(time.monotonic()):
        result = slots.run(plan)
        steps_s += result.elapsed_s
        scheduler.commit(result, time.monotonic())
        collect(scheduler.events(), tokens)
    return Run(time.perf_counter() - start, steps_s, tokens)


class TimedClient(ExecutorClient):
    """Adds up the time of its steps."""

    steps_s = 0.0

    async def receive(self) -> StepResult:
        result = await super().receive()
        self.steps_s += result.elapsed_s
        return result


async def run_over_grpc(address: str, epoch: int, requests: Sequence[Request], overlap: int) -> Run:
    client = await TimedClient.connect(address, epoch)
    scheduler = scheduler_with(requests, client.engine)
    tokens: dict[SequenceId, list[int]] = {}
    unfinished, done = len(requests), asyncio.Event()

    def publish(events: list[Event]) -> None:
        nonlocal unfinished
        unfinished -= collect(events, tokens)
        if not unfinished:
            done.set()

    loop = StepLoop(scheduler, publish, asyncio.Event(), time.monotonic, FixedOverlap(overlap))
    start = time.perf_counter()
    stepping = asyncio.create_task(loop.run(client))
    await asyncio.wait([stepping, asyncio.create_task(done.wait())], return_when=asyncio.FIRST_COMPLETED)
    elapsed_s = time.perf_counter() - start
    if stepping.done():
        stepping.result()
    stepping.cancel()
    await client.close()
    return Run(elapsed_s, client.steps_s, tokens)


def collect(events: Sequence[Event], tokens: dict[SequenceId, list[int]]) -> int:
    """Add the sampled tokens to `tokens`; how many requests finished."""
    for event in events:
        if isinstance(event, TokenSampled):
            tokens.setdefault(event.sequence_id, []).append(event.token)
    return sum(isinstance(event, RequestFinished) for event in events)


def compare(engine: Engine, address: str, requests: Sequence[Request], settings: Settings) -> None:
    run_directly(engine, requests[:4])
    asyncio.run(run_over_grpc(address, 1, requests[:4], settings.overlap))
    direct: list[Run] = []
    remote: list[Run] = []
    for number in range(settings.num_runs):
        for over_grpc in (number % 2 == 1, number % 2 == 0):
            if over_grpc:
                remote.append(asyncio.run(run_over_grpc(address, number + 2, requests, settings.overlap)))
            else:
                direct.append(run_directly(engine, requests))
        if direct[-1].tokens != remote[-1].tokens:
            raise SystemExit("the two runs gave different tokens")
        ratio = direct[-1].elapsed_s / remote[-1].elapsed_s
        print(
            f"run {number + 1}: direct {direct[-1].elapsed_s:.2f} s, over gRPC {remote[-1].elapsed_s:.2f} s, {ratio:.3f}"
        )
    report(direct, remote)


def report(direct: Sequence[Run], remote: Sequence[Run]) -> None:
    for name, runs in (("direct", direct), ("over gRPC", remote)):
        times = sorted(run.elapsed_s for run in runs)
        num_tokens = sum(len(tokens) for tokens in runs[0].tokens.values())
        outside = median(1 - run.steps_s / run.elapsed_s for run in runs)
        print(
            f"{name}: median {median(times):.2f} s ({times[0]:.2f} to {times[-1]:.2f}), "
            f"{num_tokens / median(times):.1f} output tokens/s, {outside:.1%} of the time outside the steps"
        )
    ratios = sorted(a.elapsed_s / b.elapsed_s for a, b in zip(direct, remote, strict=True))
    whole = median(run.elapsed_s for run in direct) / median(run.elapsed_s for run in remote)
    print(f"throughput over gRPC / direct: {whole:.3f} (pairs {ratios[0]:.3f} to {ratios[-1]:.3f}); tokens are equal")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", type=Path, default=ROOT / ".jetway/engines/smollm2-135m-instruct")
    parser.add_argument("--workload", type=Path, default=ROOT.parent / "shared/peers/workload.py")
    parser.add_argument("--requests", type=int, help="only so many of the workload's requests")
    parser.add_argument("--runs", type=int, default=5, help="pairs of runs")
    parser.add_argument("--overlap", type=int, default=0, choices=(0, 1), help="plans ahead of results, over gRPC")
    args = parser.parse_args()
    make_engine = OpenVino(args.engine, Pools(NUM_DEVICE_BLOCKS, 0))
    with executor(make_engine) as address:
        compare(make_engine(), address, read_requests(args.workload, args.requests), Settings(args.runs, args.overlap))


if __name__ == "__main__":
    main()
