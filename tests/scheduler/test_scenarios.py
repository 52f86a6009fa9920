"""Multi-step behaviour as text: each file in tests/scenarios is a series of commands and what came of them.

    command            scheduler blocks=N slots=N budget=N [host=N] [mode=M] [CLASS=LEVEL ...] |
                       add ID prompt=N max=N [n=N] [shared=N] [class=C] [tenant=T] [priority=N] [deadline=S] |
                       abort ID | finish ID keep=N | step N | run | clock S | lose | recover | stats | blocked
    ----               what follows, up to an empty line, is what the command must print

JETWAY_REWRITE=1 writes the files anew; commit the changes only if you understand what caused them.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jetway.scheduler.class_queue import QueueFull
from jetway.scheduler.classes import ServiceClass
from jetway.scheduler.events import RequestFinished, SequenceFinished
from jetway.scheduler.limits import PreemptionMode
from jetway.scheduler.plan import StepPlan
from jetway.scheduler.request import InvalidRequest, SequenceId
from tests.support.scheduling import Driver, ReferenceExecutor, make_engine, make_request, make_scheduler

SCENARIOS = Path(__file__).resolve().parent.parent / "scenarios"


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.txt")), ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    written = path.read_text()
    seen = "\n".join(replay(written))
    if os.environ.get("JETWAY_REWRITE"):
        path.write_text(seen)
    assert seen == written


def replay(text: str) -> Iterator[str]:
    """The file's lines, with what its commands really print."""
    world = World()
    for paragraph in text.rstrip("\n").split("\n\n"):
        lines = paragraph.split("\n")
        comments = [line for line in lines if line.startswith("#")]
        commands = [line for line in lines[: lines.index("----")] if line not in comments] if "----" in lines else []
        yield from comments
        for command in commands:
            yield command
        if commands:
            yield "----"
        for command in commands:
            yield from world.run(command)
        yield ""


class World:
    """A scheduler and its executor, by command."""

    def __init__(self) -> None:
        self.driver = Driver(make_scheduler())
        self.num_blocks = 100

    def run(self, command: str) -> Iterator[str]:
        verb, *words = command.split()
        names = [word for word in words if "=" not in word]
        options = dict(word.split("=") for word in words if "=" in word)
        yield from getattr(self, f"do_{verb}")(*names, **options)

    def do_scheduler(
        self, *, blocks: str, slots: str, budget: str, host: str = "0", mode: str = "auto", **levels: str
    ) -> Iterator[str]:
        self.num_blocks = int(blocks)
        classes = [ServiceClass(name=name, level=int(level)) for name, level in levels.items()]
        scheduler = make_scheduler(
            num_blocks=self.num_blocks,
            num_host_blocks=int(host),
            max_num_seqs=int(slots),
            max_num_batched_tokens=int(budget),
            preemption_mode=PreemptionMode(mode),
            classes=classes or [ServiceClass()],
        )
        self.driver = Driver(scheduler, ReferenceExecutor(num_blocks=self.num_blocks))
        yield "ok"

    def do_add(self, id: str, *, prompt: str, max: str, shared: str = "0", **options: str) -> Iterator[str]:
        fields: dict[str, Any] = {"prefix": "shared", "prefix_len": int(shared)}
        for key, name, kind in (
            ("n", "n", int),
            ("class", "service_class", str),
            ("tenant", "tenant", str),
            ("priority", "priority", int),
            ("deadline", "deadline_s", float),
        ):
            if key in options:
                fields[name] = kind(options[key])
        request = make_request(id, prompt_len=int(prompt), max_tokens=int(max), **fields)
        try:
            self.driver.scheduler.add(request, self.driver.now)
        except (InvalidRequest, QueueFull) as error:
            yield f"{id} refused: {error}"
        else:
            yield f"{id} accepted"

    def do_abort(self, id: str) -> Iterator[str]:
        self.driver.scheduler.abort(id)
        yield from self._said()

    def do_finish(self, id: str, *, keep: str) -> Iterator[str]:
        self.driver.scheduler.finish(SequenceId(id, 0), int(keep))
        yield from self._said()

    def do_step(self, count: str = "1") -> Iterator[str]:
        for _ in range(int(count)):
            plan = self.driver.step()
            yield render(plan) if plan else "nothing to do"
            yield from self._said()

    def do_run(self) -> Iterator[str]:
        """Steps until nothing is left, without the plans."""
        first = len(self.driver.plans)
        self.driver.run()
        yield f"{len(self.driver.plans) - first} steps"
        yield from self._said()

    def do_clock(self, now: str) -> Iterator[str]:
        self.driver.now = float(now)
        yield f"{now} s"

    def do_lose(self) -> Iterator[str]:
        self.driver.lose_executor(ReferenceExecutor(num_blocks=self.num_blocks))
        yield "lost"

    def do_recover(self) -> Iterator[str]:
        self.driver.scheduler.executor_ready(make_engine(num_blocks=self.num_blocks), 0.0)
        yield "ready"

    def do_stats(self) -> Iterator[str]:
        stats = self.driver.scheduler.stats(0.0)
        yield (
            f"running {stats.num_running}, waiting {stats.num_waiting}, free blocks {stats.num_free_device_blocks}, "
            f"computed {stats.counters.num_computed_tokens}, sampled {stats.counters.num_sampled_tokens}, "
            f"recomputed {stats.counters.num_recomputed_tokens}, preemptions {stats.counters.num_preemptions}"
        )

    def do_blocked(self) -> Iterator[str]:
        """Why the next of each level does not run, as of the last plan."""
        blocked = sorted(self.driver.scheduler.stats(0.0).blocked.items())
        for level, reason in blocked:
            yield f"level {level}: {reason}"
        if not blocked:
            yield "nobody waits"

    def _said(self) -> Iterator[str]:
        log, self.driver.log = self.driver.log + self.driver.scheduler.events(), []
        for event in log:
            match event:
                case SequenceFinished(id, reason, num_tokens):
                    yield f"  {id} finished: {reason}, {num_tokens} tokens"
                case RequestFinished(request_id):
                    yield f"  {request_id} done"


def render(plan: StepPlan) -> str:
    """One line a plan; `rows 0:1 2:8` computes 1 token of slot 0 and 8 of slot 2."""
    parts = [f"out {' '.join(f'{device}>{host}' for device, host in plan.copies_out)}"] if plan.copies_out else []
    parts += [f"in {' '.join(f'{host}>{device}' for host, device in plan.copies_in)}"] if plan.copies_in else []
    parts = [f"release {' '.join(map(str, plan.releases))}", *parts] if plan.releases else parts
    for start in plan.starts:
        blocks = " ".join(map(str, start.blocks))
        tokens = f"{start.computed}/{len(start.tokens)} tokens"
        parts.append(f"start {start.sequence_id} in slot {start.slot} with {tokens}, blocks {blocks}")
    for slot, block in zip(plan.grow_slots, plan.grow_blocks, strict=True):
        parts.append(f"grow {slot} by block {block}")
    rows = " ".join(f"{slot}:{count}" for slot, count in zip(plan.row_slots, plan.row_tokens, strict=True))
    parts.append(f"rows {rows}" if rows else "no rows")
    return f"{plan.step}: " + "; ".join(parts)
