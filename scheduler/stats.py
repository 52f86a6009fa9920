"""Figures of the scheduler as they stand."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    num_running: int
    num_waiting: int
    num_free_device_blocks: int
    num_free_host_blocks: int
    num_steps: int  # committed, over the scheduler's life, as are the counts below
    num_computed_tokens: int
    num_sampled_tokens: int
    num_preemptions: int


@dataclass(slots=True, kw_only=True)
class Counters:
    """What only grows. Owned by the scheduler; survives its executors."""

    num_added: int = 0  # sequences accepted
    num_started: int = 0  # sequences that started for the first time
    num_steps: int = 0  # committed
    num_computed_tokens: int = 0
    num_sampled_tokens: int = 0
    num_preemptions: int = 0
