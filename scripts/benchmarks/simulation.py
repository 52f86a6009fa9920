"""Traces through the real scheduler and the simulated engine, on a clock of their own: a step lasts what its model says.

What is simulated: llama2-70b in fp16 on two A100-80GB, tensor-parallel. The step-time model is fitted to the measurements
of Splitwise (Patel et al., ISCA '24), ../shared/data/splitwise_perf_model.csv.
"""

import csv
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from jetway.runtime.executor.simulated import SimulatedBehaviour, SimulatedEngine, StepTimeModel
from jetway.runtime.executor.steps import Slots
from jetway.scheduler.classes import STANDARD
from jetway.scheduler.events import Event
from jetway.scheduler.plan import EngineDescription, StepPlan
from jetway.scheduler.request import Request, SamplingParams
from jetway.scheduler.scheduler import Scheduler

DATA = Path(__file__).resolve().parent.parent.parent.parent / "shared" / "data"
GREEDY = SamplingParams(temperature=0.0, ignore_eos=True)
BLOCK_SIZE = 32
BLOCK_BYTES = BLOCK_SIZE * 80 * 8 * 128 * 2 * 2  # 80 layers, 8 KV heads of 128, keys and values in fp16
LINK_BYTES_PER_S = 2 * 25e9  # PCIe 4 x 16 in practice, one link a GPU


@dataclass(frozen=True, slots=True)
class Job:
    """One line of a trace."""

    id: str
    arrival_s: float
    client: str
    prompt_tokens: int
    output_tokens: int
    service_class: str = STANDARD


@dataclass(frozen=True, slots=True)
class Step:
    """One step as it happened; jobs that arrived by `begin_s` were known to its plan."""

    begin_s: float
    end_s: float
    plan: StepPlan
    events: Sequence[Event]


def read_trace(path: Path) -> list[Job]:
    with path.open() as file:
        return [
            Job(
                str(number),
                float(row["arrival_s"]),
                row["client"],
                int(row["prompt_tokens"]),
                int(row["output_tokens"]),
            )
            for number, row in enumerate(csv.DictReader(file))
        ]


def busiest(jobs: Sequence[Job], span_s: float) -> list[Job]:
    """The jobs of the `span_s` seconds with the most arrivals, to 10 s, from time 0 on."""
    times = np.array([job.arrival_s for job in jobs])
    begins = np.arange(0.0, max(times[-1] - span_s, 0.0) + 10.0, 10.0)
    counts = np.searchsorted(times, begins + span_s) - np.searchsorted(times, begins)
    begin = float(begins[counts.argmax()])
    return [replace(job, arrival_s=job.arrival_s - begin) for job in jobs if begin <= job.arrival_s <= begin + span_s]


def paced(jobs: Sequence[Job], factor: float) -> list[Job]:
    """The same jobs with all times multiplied: 0 is all at once."""
    return [replace(job, arrival_s=job.arrival_s * factor) for job in jobs]


def describe(*, pool_tokens: int, max_num_seqs: int, max_num_batched_tokens: int) -> EngineDescription:
    """The engine, with a host pool of four times the device pool."""
    num_blocks = pool_tokens // BLOCK_SIZE
    return EngineDescription(
        engine_id="llama2-70b",
        kind="simulated",
        version="0",
        block_size=BLOCK_SIZE,
        num_device_blocks=num_blocks,
        num_host_blocks=4 * num_blocks,
        block_bytes=BLOCK_BYTES,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        max_seq_len=pool_tokens,
        vocab_size=32_000,
    )


def fit_step_time(path: Path) -> StepTimeModel:
    """Least squares of the relative error over prompt phases and decode steps.

    Only rows of 128 generated tokens (what a decode's context was is known) and of batches that ran whole, up to 32.
    """
    wanted = {"model": "llama2-70b", "hardware": "a100-80gb", "tensor_parallel": "2", "token_size": "128"}
    features, seconds = [], []
    with path.open() as file:
        for row in csv.DictReader(file):
            prompt, batch = int(row["prompt_size"]), int(row["batch_size"])
            if batch > 32 or any(row[name] != value for name, value in wanted.items()):
                continue
            features += [(1, batch * prompt, 0, batch * prompt), (1, 0, batch, batch * (prompt + 64))]
            seconds += [float(row["prompt_time"]) / 1e3, float(row["token_time"]) / 1e3]
    measured = np.array(seconds)
    scaled = np.array(features) / measured[:, None]
    theta = np.linalg.lstsq(scaled, np.ones(len(measured)), rcond=None)[0]
    errors = np.abs(scaled @ theta - 1.0)
    model = StepTimeModel(**dict(zip(("step_s", "prefill_token_s", "decode_seq_s", "kv_token_s"), theta, strict=True)))
    print(
        f"step time: {model.step_s * 1e3:.1f} ms + {model.prefill_token_s * 1e6:.0f} us a prefill token + "
        f"{model.decode_seq_s * 1e6:.0f} us a decode + {model.kv_token_s * 1e6:.2f} us a token of context "
        f"(error over {len(measured)} measurements: mean {errors.mean():.0%}, greatest {errors.max():.0%})"
    )
    return model


class Simulation:
    """Runs jobs through a scheduler. Nothing is random but the prompts, which share nothing and have a fixed seed."""

    def __init__(self, scheduler: Scheduler, engine: EngineDescription, step_time: StepTimeModel) -> None:
        self._scheduler = scheduler
        self._now = 0.0
        behaviour = SimulatedBehaviour(step_time=step_time, verify_kv=False)
        self._slots = Slots(SimulatedEngine(engine, behaviour=behaviour, sleep=self._pass))
        self._rng = np.random.default_rng(0)
        self._vocab_size = engine.vocab_size

    def _pass(self, duration_s: float) -> None:
        self._now += duration_s

    def run(self, jobs: Sequence[Job]) -> Iterator[Step]:
        """Every step until all jobs, which come in order of arrival, are done."""
        coming = deque(jobs)
        while True:
            self._add_arrived(coming)
            plan = self._scheduler.plan(self._now)
            if plan is not None:
                yield self._step(plan, coming)
            elif coming:
                self._now = coming[0].arrival_s
            else:
                return

    def _step(self, plan: StepPlan, coming: deque[Job]) -> Step:
        begin_s = self._now
        copied_out_s, copied_in_s = (
            len(copies) * BLOCK_BYTES / LINK_BYTES_PER_S for copies in (plan.copies_out, plan.copies_in)
        )
        self._pass(copied_out_s + copied_in_s)
        result = self._slots.run(plan)
        self._add_arrived(coming)  # while the step ran
        result = replace(result, elapsed_s=self._now - begin_s, copied_out_s=copied_out_s, copied_in_s=copied_in_s)
        self._scheduler.commit(result, self._now)
        return Step(begin_s, self._now, plan, self._scheduler.events())

    def _add_arrived(self, coming: deque[Job]) -> None:
        while coming and coming[0].arrival_s <= self._now:
            job = coming.popleft()
            request = Request(
                id=job.id,
                prompt=self._rng.integers(self._vocab_size, size=job.prompt_tokens).tolist(),
                sampling=GREEDY,
                max_tokens=job.output_tokens,
                service_class=job.service_class,
                tenant=job.client,
            )
            self._scheduler.add(request, job.arrival_s)
