"""The CPU engine as a pipeline: each rank computes the layers of one stage and hands the hidden states on to the next."""

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Self

import numpy as np

from jetway.runtime.errors import EngineFailed
from jetway.scheduler.plan import EngineDescription

from .base import Int32Array, Launch, Sampled, StepBatch
from .noise import Float32Array
from .openvino_cut import Stage
from .openvino_model import PagedModel, Resources
from .pipeline import InThread, refuse_pending, tie_of
from .rank_messages import receive, send
from .ranks import Channel, Ranks
from .sampling import sample

log = logging.getLogger(__name__)


class OpenVinoStage:
    """An Engine over one stage of a model, while the other ranks launch the same on theirs.

    One thread does all copies and steps, in order. What fails in one stage passes through those after it, and comes back
    to all as what was sampled would.
    """

    def __init__(self, model: PagedModel, ranks: Ranks) -> None:
        self.max_launches = ranks.size
        self._model = model
        self._ranks = ranks
        self._tie = tie_of(ranks, ranks.size - 1)
        self._thread = ThreadPoolExecutor(1, "stage")
        self._copies: list[Callable[[], None]] = []  # until the next launch

    @classmethod
    def load(cls, directory: Path, resources: Resources, ranks: Ranks) -> Self:
        """This rank's stage of the engine in `directory`, of as many as there are ranks.

        Raises ConfigError as `PagedModel.load` does.
        """
        return cls(PagedModel.load(directory, resources, Stage(ranks.rank, ranks.size)), ranks)

    @property
    def eos_token_ids(self) -> frozenset[int]:
        return self._model.eos_token_ids

    def describe(self) -> EngineDescription:
        return self._model.describe()

    def copy_out(self, device_blocks: Int32Array, host_blocks: Int32Array) -> None:
        self._copies.append(lambda: self._model.pools.copy_out(device_blocks, host_blocks))

    def copy_in(self, host_blocks: Int32Array, device_blocks: Int32Array) -> None:
        self._copies.append(lambda: self._model.pools.copy_in(host_blocks, device_blocks))

    def launch(self, batch: StepBatch) -> Launch:
        """Raises EngineFailed as `refuse_pending` does."""
        refuse_pending(batch)
        copies, self._copies = self._copies, []
        return self._tie(InThread(self._thread.submit(self._step, copies, batch)))

    def _step(self, copies: Sequence[Callable[[], None]], batch: StepBatch) -> Sampled:
        """What this stage samples: nothing, but of the last. Raises EngineFailed, of which the next stage hears."""
        try:
            return self._compute(copies, batch)
        except EngineFailed as error:
            self._hand_on(error)
            raise
        except Exception as error:
            log.exception("a fault of ours in stage %d", self._model.stage.index)
            failure = EngineFailed(f"a fault of ours in a stage: {type(error).__name__}: {error}")
            self._hand_on(failure)
            raise failure from error

    def _compute(self, copies: Sequence[Callable[[], None]], batch: StepBatch) -> Sampled:
        began = time.perf_counter()
        for copy in copies:
            copy()
        copied_s = time.perf_counter() - began
        values = self._model.infer(batch, None if self._model.stage.is_first else self._receive())
        if self._model.stage.is_last:
            return replace(sample(values, batch.sample_states), copy_wait_s=copied_s)
        self._hand_on(values)
        return Sampled((), {}, {}, copied_s)

    def _receive(self) -> Float32Array:
        hidden_states = receive(self._ranks, self._ranks.rank - 1, Channel.HIDDEN_STATES)
        assert isinstance(hidden_states, np.ndarray)
        return hidden_states

    def _hand_on(self, message: Float32Array | EngineFailed) -> None:
        if not self._model.stage.is_last:
            send(message, self._ranks, self._ranks.rank + 1, Channel.HIDDEN_STATES)
