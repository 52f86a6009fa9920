"""Fairness between the clients of two traces, on the simulated engine: FCFS; the policy `weighted`; VTC, also with weights.

    scripts/bench fairness [--load 1.5] [--pool-tokens 16384]

Service is counted as in "Fairness in Serving Large Language Models" (Sheng et al., OSDI '24): 1 a prompt token, when its
request starts, and 2 a generated token; where a party has a weight, divided by it. Parties are the clients; to the policy
`weighted` they are its three classes, to which the clients belong in turn. A party is backlogged in a step if a request of
it still waits for its first start once the step is planned. Shown are

* greatest: of what two parties were served, the greatest difference over any interval in which both were backlogged
  throughout; and the same as a fraction of the paper's bound, 2 * max(1 * longest prompt, 2 * tokens of the KV pool);
* mean: the greatest difference of each pair in each of its longest such intervals, on average over steps;
* windows: the most less the least that parties backlogged throughout a window of 60 s were served in it, per second; one
  window every 10 s while requests arrive; the greatest and the mean;
* tokens/s: prompts and outputs over the time from the first arrival to the last token;
* light: times to first token of the clients that ask for less than an equal share of what the service can do.

What the service can do is measured first, with all requests there from the start; the arrivals are then stretched or
squeezed to `--load` times that.
"""

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, cycle
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jetway.runtime.executor.simulated import StepTimeModel
from jetway.runtime.policy import FCFS, POLICIES
from jetway.scheduler.classes import STANDARD, ServiceClass
from jetway.scheduler.events import TokenSampled
from jetway.scheduler.limits import Limits
from jetway.scheduler.plan import EngineDescription
from jetway.scheduler.scheduler import Scheduler

from .simulation import DATA, Job, Simulation, Step, busiest, describe, fit_step_time, paced, read_trace

TRACES = ("vtc_arena_multitenant.csv", "servegen_mlarge_multitenant.csv")
SPAN_S = 600.0  # of a trace, the busiest
WINDOW_S, STRIDE_S = 60.0, 10.0
PROMPT_TOKEN, SAMPLED_TOKEN = 1, 2
LIMITS = Limits(max_num_seqs=128, max_num_batched_tokens=2048)


@dataclass(frozen=True, slots=True)
class Policy:
    """`class_of` says which class a client belongs to, where the classes are the parties; empty: clients are."""

    name: str
    classes: tuple[ServiceClass, ...]
    weights: Mapping[str, float] = field(default_factory=dict)  # of parties
    class_of: Mapping[str, str] = field(default_factory=dict)

    def party_of(self, client: str) -> str:
        return self.class_of.get(client, client)


FIRST_COME = Policy("FCFS", POLICIES[FCFS])


class Differences(NamedTuple):
    """Of what two parties were served, over intervals in which both were backlogged."""

    greatest: float
    mean: float  # over the steps of all such intervals


@dataclass(frozen=True, slots=True)
class Record:
    """What C parties were served in S steps, over their weights."""

    begins_s: NDArray[np.float64]  # [S]
    end_s: float
    backlogged: NDArray[np.bool_]  # [S, C]
    service: NDArray[np.float64]  # [S + 1, C], before the first step and after each
    first_tokens_s: dict[str, float]  # by job, from its arrival

    def differences(self) -> Differences:
        seen: list[tuple[float, int]] = []  # difference, steps
        for one, other in combinations(range(self.service.shape[1]), 2):
            difference = self.service[:, one] - self.service[:, other]
            both = np.concatenate(([False], self.backlogged[:, one] & self.backlogged[:, other], [False]))
            edges = np.flatnonzero(both[1:] != both[:-1])
            for first, last in edges.reshape(-1, 2):
                seen.append((float(np.ptp(difference[first : last + 1])), int(last - first)))
        if not seen:
            return Differences(0.0, 0.0)
        sizes, lengths = np.array(seen).T
        return Differences(float(sizes.max()), float(np.average(sizes, weights=lengths)))

    def window_differences(self, until_s: float) -> list[float]:
        """Service per second, for each window in which at least two parties were backlogged throughout."""
        differences = []
        for begin_s in np.arange(0.0, until_s - WINDOW_S, STRIDE_S):
            first, last = np.searchsorted(self.begins_s, (begin_s, begin_s + WINDOW_S))
            throughout = self.backlogged[first:last].all(axis=0)
            if throughout.sum() >= 2:
                served = (self.service[last] - self.service[first])[throughout]
                differences.append(float(np.ptp(served)) / WINDOW_S)
        return differences


class Recorder:
    """Takes the steps of one run, in order."""

    def __init__(self, jobs: Sequence[Job], policy: Policy) -> None:
        parties = sorted({policy.party_of(job.client) for job in jobs})
        places = {party: place for place, party in enumerate(parties)}
        self._jobs = {job.id: job for job in jobs}
        self._place = {job.client: places[policy.party_of(job.client)] for job in jobs}
        self._weight = np.array([policy.weights.get(party, 1.0) for party in parties])
        self._coming = list(reversed(jobs))
        self._waiting = np.zeros(len(parties), np.int64)
        self._served = np.zeros(len(parties))
        self._started: set[str] = set()
        self._begins_s: list[float] = []
        self._end_s = 0.0
        self._backlogged: list[NDArray[np.bool_]] = []
        self._service = [self._served.copy()]
        self._first_tokens_s: dict[str, float] = {}

    def take(self, step: Step) -> None:
        while self._coming and self._coming[-1].arrival_s <= step.begin_s:
            self._waiting[self._place[self._coming.pop().client]] += 1
        for id in {start.sequence_id.request_id for start in step.plan.starts} - self._started:
            self._started.add(id)
            self._waiting[self._place[self._jobs[id].client]] -= 1
            self._served[self._place[self._jobs[id].client]] += PROMPT_TOKEN * self._jobs[id].prompt_tokens
        for event in step.events:
            if isinstance(event, TokenSampled):
                job = self._jobs[event.sequence_id.request_id]
                self._served[self._place[job.client]] += SAMPLED_TOKEN
                self._first_tokens_s.setdefault(job.id, step.end_s - job.arrival_s)
        self._begins_s.append(step.begin_s)
        self._end_s = step.end_s
        self._backlogged.append(self._waiting > 0)
        self._service.append(self._served.copy())

    def record(self) -> Record:
        service = np.array(self._service) / self._weight
        return Record(np.array(self._begins_s), self._end_s, np.array(self._backlogged), service, self._first_tokens_s)


def run(jobs: Sequence[Job], policy: Policy, engine: EngineDescription, step_time: StepTimeModel) -> Record:
    unbounded = [replace(each, max_queued_requests=len(jobs), max_queued_tokens=1 << 40) for each in policy.classes]
    tenant_weights = {} if policy.class_of else policy.weights
    scheduler = Scheduler(LIMITS, unbounded, engine, tenant_weights=tenant_weights)
    jobs = [replace(job, service_class=policy.class_of.get(job.client, STANDARD)) for job in jobs]
    recorder = Recorder(jobs, policy)
    for step in Simulation(scheduler, engine, step_time).run(jobs):
        recorder.take(step)
    return recorder.record()


def make_policies(demand: Counter[str]) -> tuple[Policy, ...]:
    """`demand` by client."""
    weighted = POLICIES["weighted"]
    in_turn = cycle(each.name for each in weighted)
    busiest_client = demand.most_common(1)[0][0]
    return (
        FIRST_COME,
        Policy(
            "weighted",
            weighted,
            weights={each.name: each.weight for each in weighted},
            class_of=dict(zip(sorted(demand), in_turn, strict=False)),
        ),
        Policy("VTC", (ServiceClass(),)),
        Policy("VTC, weighted", (ServiceClass(),), weights={busiest_client: 2.0}),
    )


def compare(name: str, load: float, engine: EngineDescription, step_time: StepTimeModel) -> None:
    jobs = busiest(read_trace(DATA / name), SPAN_S)
    demand: Counter[str] = Counter()
    for job in jobs:
        demand[job.client] += PROMPT_TOKEN * job.prompt_tokens + SAMPLED_TOKEN * job.output_tokens
    least_s = run(paced(jobs, 0.0), FIRST_COME, engine, step_time).end_s
    span_s = least_s / load
    jobs = paced(jobs, span_s / jobs[-1].arrival_s)
    light = {client for client, asked in demand.items() if asked * load < demand.total() / len(demand)}
    print(
        f"\n{name}: {len(jobs)} requests of {len(demand)} clients in {span_s:.0f} s, {load} x what the service can do; "
        f"{len(light)} light clients ask for {sum(demand[client] for client in light) / demand.total():.0%}\n"
        f"{'':18} {'greatest':>9} {'of bound':>9} {'mean':>9} {'windows max':>12} {'mean':>7} {'tokens/s':>9} "
        f"{'light p50':>10} {'p99':>8}"
    )
    bound = 2 * max(
        PROMPT_TOKEN * max(job.prompt_tokens for job in jobs),
        SAMPLED_TOKEN * engine.num_device_blocks * engine.block_size,
    )
    for policy in make_policies(demand):
        record = run(jobs, policy, engine, step_time)
        seen, windows = record.differences(), record.window_differences(span_s)
        first_tokens_s = [record.first_tokens_s[job.id] for job in jobs if job.client in light]
        p50, p99 = np.percentile(first_tokens_s, (50, 99))
        num_tokens = sum(job.prompt_tokens + job.output_tokens for job in jobs)
        print(
            f"{policy.name:18} {seen.greatest:9,.0f} {seen.greatest / bound:9.2f} {seen.mean:9,.0f} "
            f"{max(windows):12.0f} {np.mean(windows):7.0f} {num_tokens / record.end_s:9.0f} {p50:8.1f} s {p99:6.1f} s",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--load", type=float, default=1.5, help="work asked for over what the service can do")
    parser.add_argument("--pool-tokens", type=int, default=16_384, help="tokens of the KV pool")
    args = parser.parse_args()
    engine = describe(
        pool_tokens=args.pool_tokens,
        max_num_seqs=LIMITS.max_num_seqs,
        max_num_batched_tokens=LIMITS.max_num_batched_tokens,
    )
    step_time = fit_step_time(DATA / "splitwise_perf_model.csv")
    for name in TRACES:
        if (DATA / name).exists():
            compare(name, args.load, engine, step_time)
        else:
            print(f"\nskipped: {DATA / name} does not exist")


if __name__ == "__main__":
    main()
