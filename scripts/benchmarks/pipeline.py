"""How idle the stages of a pipeline are, by how many plans are sent ahead.

    scripts/bench pipeline [--rounds N]

The simulated engine in four stages and 256 slots, the executor in a process of its own. Two loads: "decodes", steps of
equal length; and "mixed", prompts of 16 to 512 tokens and answers of 20 to 200, in steps as long as a model of what they
compute says. Idle is what a stage does not compute in the middle six tenths of the run.
"""

import argparse
import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from statistics import median

from jetway.runtime.config import SchedulerConfig
from jetway.runtime.executor.client import ExecutorClient
from jetway.runtime.executor.server import ExecutorServer
from jetway.runtime.executor.simulated import SimulatedBehaviour, StepTimeModel
from jetway.runtime.executor.simulated_pipeline import SimulatedPipeline
from jetway.runtime.garbage import kept_out_of_steps
from jetway.runtime.loop import StepLoop
from jetway.runtime.overlap import make_overlap
from jetway.runtime.serve import make_scheduler
from jetway.scheduler.events import Event, RequestFinished
from jetway.scheduler.request import Request

from . import boundary
from .remote import process

NUM_STAGES = 4
NUM_SEQS = boundary.NUM_SEQS
ENGINE = replace(boundary.ENGINE, max_num_batched_tokens=512, num_stages=NUM_STAGES)


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked, all at once, and what steps cost over all stages."""

    step_time: StepTimeModel
    requests: Sequence[Request]


def request(number: int, prompt_tokens: int, output_tokens: int) -> Request:
    rng = random.Random(number)
    prompt = [rng.randrange(ENGINE.vocab_size) for _ in range(prompt_tokens)]
    return Request(
        id=str(number), prompt=prompt, sampling=boundary.OFFLINE, max_tokens=output_tokens, service_class="batch"
    )


def make_loads() -> dict[str, Load]:
    rng = random.Random(0)
    return {
        "decodes": Load(StepTimeModel(step_s=0.08), [request(number, 2, 120) for number in range(NUM_SEQS)]),
        "mixed": Load(
            StepTimeModel(step_s=0.04, prefill_token_s=1e-4, decode_seq_s=1e-4, kv_token_s=2e-7),
            [request(number, rng.randint(16, 512), rng.randint(20, 200)) for number in range(3 * NUM_SEQS)],
        ),
    }


@dataclass(frozen=True, slots=True)
class Stage:
    """Sleeps, and remembers when."""

    spans: list[tuple[float, float]] = field(default_factory=list)

    def __call__(self, duration_s: float) -> None:
        began = time.perf_counter()
        time.sleep(duration_s)
        self.spans.append((began, time.perf_counter()))


def serve_stages(pipe: Connection, step_time: StepTimeModel) -> None:
    """Say the address; at a word, say each stage's spans."""
    stages = [Stage() for _ in range(NUM_STAGES)]
    behaviour = SimulatedBehaviour(step_time=step_time, verify_kv=False)
    server = ExecutorServer(SimulatedPipeline(ENGINE, behaviour=behaviour, sleeps=stages), "127.0.0.1:0")
    server.start()
    pipe.send(True)
    pipe.send(f"127.0.0.1:{server.port}")
    pipe.recv()
    pipe.send([stage.spans for stage in stages])
    server.wait()


async def step_all(address: str, requests: Sequence[Request], overlap: str) -> float:
    """Tokens a second."""
    session = await ExecutorClient.connect(address, 1)
    planned = make_scheduler(SchedulerConfig(overlap=overlap), session.engine)  # type: ignore[arg-type]
    done, num_left = asyncio.Event(), len(requests)

    def publish(events: list[Event]) -> None:
        nonlocal num_left
        num_left -= sum(isinstance(event, RequestFinished) for event in events)
        if not num_left:
            done.set()

    for each in requests:
        planned.add(each, 0.0)
    loop = StepLoop(planned, publish, asyncio.Event(), time.monotonic, make_overlap(overlap, NUM_STAGES))
    began = time.perf_counter()
    with kept_out_of_steps():
        stepping = asyncio.create_task(loop.run(session))
        await done.wait()
    elapsed_s = time.perf_counter() - began
    stepping.cancel()
    await session.close()
    return sum(each.max_tokens or 0 for each in requests) / elapsed_s


def idle_share(spans: Sequence[tuple[float, float]]) -> float:
    """Of the middle six tenths of the time from the first to the last step."""
    first, last = spans[0][0], spans[-1][1]
    begin, end = first + 0.2 * (last - first), first + 0.8 * (last - first)
    busy = sum(max(0.0, min(ended, end) - max(began, begin)) for began, ended in spans)
    return 1.0 - busy / (end - begin)


def measure(name: str, load: Load, overlap: str, num_rounds: int) -> None:
    rates, idle = [], []
    for _ in range(num_rounds):
        with process(serve_stages, load.step_time) as pipe:
            rates.append(asyncio.run(step_all(pipe.recv(), load.requests, overlap)))
            pipe.send(True)
            idle.append([idle_share(spans[1:]) for spans in pipe.recv()])  # the first is the warm-up's
    worst = [max(each) for each in idle]
    stages = ", ".join(f"{median(each):.1%}" for each in zip(*idle, strict=True))
    print(
        f"{name}, overlap {overlap}: {median(rates):,.0f} tokens/s, idle by stage {stages} "
        f"(worst {min(worst):.1%} to {max(worst):.1%})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="of each measurement")
    args = parser.parse_args()
    for name, load in make_loads().items():
        for overlap in ("0", "1", "3", "4"):
            measure(name, load, overlap, args.rounds)


if __name__ == "__main__":
    main()
