"""What each slot holds, in numbers, and whether a plan fits them: all of a plan is checked before any of it is done."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import NDArray

from jetway.scheduler.plan import EngineDescription, Start, StepPlan

from .base import Int32Array, Int64Array

BoolArray = NDArray[np.bool_]


class PlanError(ValueError):
    """The plan is not one that a scheduler may send: a mistake of ours. Nothing of it took effect."""


@dataclass(frozen=True, slots=True)
class SlotCounts:
    """One entry a slot; meaningless where not `resident`."""

    resident: BoolArray
    ended: BoolArray  # stopped or failed here; its rows are skipped until it is released
    computed: Int32Array  # tokens whose KV stands in the blocks
    known: Int32Array  # tokens of prompt and output
    started: Int32Array  # of those, the tokens that the start brought
    blocks: Int32Array  # length of the block table

    @classmethod
    def none_resident(cls, num_slots: int) -> Self:
        flags, numbers = np.zeros((2, num_slots), bool), np.zeros((4, num_slots), np.int32)
        return cls(*flags, *numbers)

    def after(self, plan: StepPlan, engine: EngineDescription) -> "SlotCounts":
        """The counts when the plan's rows are computed: its releases, starts and growth done. Raises PlanError."""
        counts = SlotCounts(*(getattr(self, field.name).copy() for field in fields(self)))
        counts._release(plan.releases)
        _check_copies("copied out", plan.copies_out, [engine.num_device_blocks, engine.num_host_blocks])
        _check_copies("copied in", plan.copies_in, [engine.num_host_blocks, engine.num_device_blocks])
        for start in plan.starts:
            counts._start(start, engine)
        counts._grow(plan, engine)
        counts._check_rows(plan, engine)
        return counts

    def _release(self, slots: Sequence[int]) -> None:
        _check_ids("slot", slots, len(self.resident))
        _check_unique("slot released", slots)
        for slot in slots:
            _check(bool(self.resident[slot]), f"slot {slot} is released but not resident")
        self.resident[list(slots)] = False

    def _start(self, start: Start, engine: EngineDescription) -> None:
        slot, known = start.slot, len(start.tokens)
        _check_ids("slot", [slot], len(self.resident))
        _check(not self.resident[slot], f"slot {slot} is started but resident")
        _check_range(f"slot {slot}: known tokens", known, 1, engine.max_seq_len)
        _check_range(f"slot {slot}: prompt_len", start.prompt_len, 1, known)
        _check_range(f"slot {slot}: computed tokens", start.computed, 0, known - 1)
        _check_ids("token", start.tokens, engine.vocab_size)
        _check_ids("logit_bias token", [token for token, _ in start.sampling.logit_bias], engine.vocab_size)
        _check_ids("device block", start.blocks, engine.num_device_blocks)
        _check_unique(f"block in the table of slot {slot}", start.blocks)
        _check_range(f"slot {slot}: blocks", len(start.blocks), 0, blocks_of(engine.max_seq_len, engine.block_size))
        self.resident[slot], self.ended[slot] = True, False
        self.computed[slot], self.known[slot], self.started[slot] = start.computed, known, known
        self.blocks[slot] = len(start.blocks)

    def _grow(self, plan: StepPlan, engine: EngineDescription) -> None:
        _check(len(plan.grow_slots) == len(plan.grow_blocks), "grow_slots and grow_blocks differ in length")
        _check_ids("slot", plan.grow_slots, len(self.resident))
        _check_ids("device block", plan.grow_blocks, engine.num_device_blocks)
        for slot in plan.grow_slots:
            _check(bool(self.resident[slot]), f"slot {slot} grows but is not resident")
            self.blocks[slot] += 1
            limit = blocks_of(engine.max_seq_len, engine.block_size)
            _check_range(f"slot {slot}: blocks", int(self.blocks[slot]), 0, limit)

    def _check_rows(self, plan: StepPlan, engine: EngineDescription) -> None:
        _check(len(plan.row_slots) == len(plan.row_tokens), "row_slots and row_tokens differ in length")
        _check_ids("slot", plan.row_slots, len(self.resident))
        _check_unique("slot of a row", plan.row_slots)
        _check_range("tokens of the step", sum(plan.row_tokens), 0, engine.max_num_batched_tokens)
        slots, tokens = np.asarray(plan.row_slots, np.int64), np.asarray(plan.row_tokens, np.int64)
        _check_each(slots, self.resident[slots], "is not resident")
        _check_each(slots, tokens >= 1, "computes no token")
        ended, ends = self.ended[slots], self.computed[slots] + tokens
        _check_each(slots, ended | (ends <= self.known[slots]), "computes more than its known tokens")
        _check_each(
            slots, ended | (ends <= self.blocks[slots] * engine.block_size), "computes more than its blocks hold"
        )


def blocks_of(num_tokens: int, block_size: int) -> int:
    """How many blocks hold `num_tokens`."""
    return -(-num_tokens // block_size)


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise PlanError(message)


def _check_each(slots: Int64Array, good: BoolArray, message: str) -> None:
    if not good.all():
        raise PlanError(f"the row of slot {slots[~good][0]} {message}")


def _check_range(what: str, value: int, low: int, high: int) -> None:
    _check(low <= value <= high, f"{what} must be in [{low}, {high}], not {value}")


def _check_ids(what: str, ids: Sequence[int], count: int) -> None:
    if ids and not (0 <= min(ids) and max(ids) < count):
        wrong = next(i for i in ids if not 0 <= i < count)
        raise PlanError(f"{what} {wrong} does not exist; there are {count}")


def _check_unique(what: str, ids: Sequence[int]) -> None:
    if len(set(ids)) < len(ids):
        raise PlanError(f"{what} twice: {sorted(i for i in set(ids) if list(ids).count(i) > 1)}")


def _check_copies(what: str, copies: Sequence[tuple[int, int]], counts: Sequence[int]) -> None:
    """`counts` are the blocks of the pool copied from and of the pool copied to."""
    for column, count in zip(zip(*copies, strict=True), counts, strict=False):
        _check_ids(f"block {what}", column, count)
    _check_unique(f"block {what} to", [target for _, target in copies])
