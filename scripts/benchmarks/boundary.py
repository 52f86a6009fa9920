"""What the boundaries cost: executor idle between steps, bytes a step, tokens to the gateway and on to clients.

    scripts/bench boundary [--rounds N] [--only idle|bytes|session|delivery]

The simulated engine, 256 sequences. Every role is in a process of its own, as in production; bare servers of the same
kind run beside the gateway, interleaved.
"""

import argparse
import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from multiprocessing.connection import Connection
from statistics import median

import numpy as np

from jetway.runtime.executor.base import Engine, Sampled, StepBatch
from jetway.runtime.executor.client import ExecutorClient
from jetway.runtime.executor.server import ExecutorServer
from jetway.runtime.executor.simulated import SimulatedBehaviour, SimulatedEngine, StepTimeModel
from jetway.runtime.executor.wire import plan_to_proto, result_to_proto
from jetway.runtime.garbage import kept_out_of_steps
from jetway.runtime.gateway.inbox import Inbox
from jetway.runtime.gateway.session import SchedulerSession
from jetway.runtime.loop import StepLoop
from jetway.runtime.overlap import FixedOverlap
from jetway.scheduler.events import Event, RequestFinished
from jetway.scheduler.plan import EngineDescription
from jetway.scheduler.request import Request, SamplingParams

from . import delivery
from .remote import executor, process, scheduler, scheduler_of
from .stub import StubExecutor

NUM_SEQS = 256
NUM_STEPS = 300
STEP_S = 0.02  # of the idle measurement: a decode step of a mid-sized model on one GPU
PROMPT_TOKENS = 16
OFFLINE = SamplingParams(temperature=0.0, ignore_eos=True)
ENGINE = EngineDescription(
    engine_id="simulated",
    kind="simulated",
    version="0",
    block_size=32,
    num_device_blocks=NUM_SEQS * 32,
    num_host_blocks=0,
    block_bytes=1,
    max_num_seqs=NUM_SEQS,
    max_num_batched_tokens=8192,
    max_seq_len=2048,
    vocab_size=32_000,
)


def simulated(step_s: float) -> Engine:
    behaviour = SimulatedBehaviour(step_time=StepTimeModel(step_s=step_s), verify_kv=False)
    return SimulatedEngine(ENGINE, behaviour=behaviour)


def requests(num_tokens: int) -> list[Request]:
    return [
        Request(id=str(number), prompt=[1 + number] * PROMPT_TOKENS, sampling=OFFLINE, max_tokens=num_tokens)
        for number in range(NUM_SEQS)
    ]


# Executor idle.


@dataclass(frozen=True, slots=True)
class Span:
    """One call of `execute`: when, and for how many rows."""

    began: float
    ended: float
    num_rows: int


class TimedEngine(SimulatedEngine):
    """Remembers its spans; simulated sampling is inside them."""

    def __init__(self) -> None:
        super().__init__(ENGINE, behaviour=SimulatedBehaviour(step_time=StepTimeModel(step_s=STEP_S), verify_kv=False))
        self.spans: list[Span] = []

    def execute(self, batch: StepBatch) -> Sampled:
        began = time.perf_counter()
        sampled = super().execute(batch)
        self.spans.append(Span(began, time.perf_counter(), len(batch.past_lens)))
        return sampled


def serve_timed(pipe: Connection) -> None:
    """Say the address; at a word, say the spans."""
    engine = TimedEngine()
    server = ExecutorServer(engine, "127.0.0.1:0")
    server.start()
    pipe.send(True)
    pipe.send(f"127.0.0.1:{server.port}")
    pipe.recv()
    pipe.send(engine.spans)
    server.wait()


async def step_all(address: str, depth: int) -> None:
    session = await ExecutorClient.connect(address, 1)
    planned = scheduler_of(session.engine)
    done, num_left = asyncio.Event(), NUM_SEQS

    def publish(events: list[Event]) -> None:
        nonlocal num_left
        num_left -= sum(isinstance(event, RequestFinished) for event in events)
        if not num_left:
            done.set()

    for request in requests(NUM_STEPS):
        planned.add(request, 0.0)
    loop = StepLoop(planned, publish, asyncio.Event(), time.monotonic, FixedOverlap(depth))
    with kept_out_of_steps():
        stepping = asyncio.create_task(loop.run(session))
        await done.wait()
    stepping.cancel()
    await session.close()


def idle_ms(depth: int) -> list[float]:
    """Between the end of sampling and the next compute, where both steps are full."""
    with process(serve_timed) as pipe:
        asyncio.run(step_all(pipe.recv(), depth))
        pipe.send(True)
        spans: list[Span] = pipe.recv()
    return [1e3 * (b.began - a.ended) for a, b in pairwise(spans) if a.num_rows == b.num_rows == NUM_SEQS]


def measure_idle(num_rounds: int) -> None:
    gaps: dict[int, list[list[float]]] = {0: [], 1: []}
    for _ in range(num_rounds):
        for depth, rounds in gaps.items():
            rounds.append(idle_ms(depth))
    for depth, rounds in gaps.items():
        p50s = [median(each) for each in rounds]
        p99 = np.percentile(np.concatenate(rounds), 99)
        spread = f"{min(p50s):.2f} to {max(p50s):.2f}"
        print(f"executor idle at depth {depth}: p50 {median(p50s):.2f} ms ({spread}), p99 {p99:.2f} ms")


# Bytes.


def measure_bytes(num_rounds: int) -> None:
    planned, stub = scheduler_of(ENGINE), StubExecutor()
    for request in requests(NUM_STEPS):
        planned.add(request, 0.0)
    sizes: list[tuple[int, int]] = []
    while (plan := planned.plan(0.0)) is not None:
        result = stub.run(plan)
        planned.commit(result, 0.0)
        planned.events()
        sizes.append((plan_to_proto(plan).ByteSize(), result_to_proto(result).ByteSize()))
    plans, results = zip(*sizes[1:-1], strict=True)
    print(f"a decode step of {NUM_SEQS}: plan {median(plans):.0f} bytes, result {median(results):.0f} bytes")
    print(f"the step that starts them with {PROMPT_TOKENS} tokens each: plan {sizes[0][0]} bytes")


# Scheduler to gateway.


async def receive_all(address: str, num_tokens: int) -> float:
    """Tokens a second, from the first to the last."""
    session = SchedulerSession(address, recovery_limit_s=0.0)
    session.start()
    await session.connection.on.wait()
    inbox = Inbox(NUM_SEQS)
    await session.submit(requests(num_tokens), inbox)
    num_open, num_received, began = NUM_SEQS, 0, 0.0
    while num_open:
        gathered = await inbox.next()
        began = began or time.perf_counter()
        num_received += len(gathered.tokens)
        num_open -= gathered.end is not None
    elapsed_s = time.perf_counter() - began
    await session.close()
    return num_received / elapsed_s


def measure_session(num_rounds: int) -> None:
    with executor(partial(simulated, 0.0)) as device, scheduler(device) as address:
        rates = [asyncio.run(receive_all(address, 500)) for _ in range(num_rounds)]
    print(
        f"scheduler to gateway, {NUM_SEQS} requests: {median(rates):,.0f} tokens/s ({min(rates):,.0f} to {max(rates):,.0f})"
    )


SECTIONS: dict[str, Callable[[int], None]] = {
    "idle": measure_idle,
    "bytes": measure_bytes,
    "session": measure_session,
    "delivery": delivery.measure,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="of each measurement")
    parser.add_argument("--only", choices=SECTIONS, help="one section; by default all")
    args = parser.parse_args()
    for name, section in SECTIONS.items():
        if args.only in (None, name):
            section(args.rounds)


if __name__ == "__main__":
    main()
