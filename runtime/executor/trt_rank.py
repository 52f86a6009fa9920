"""Which part of a TensorRT engine a rank is (contracts/tensorrt-llm.md sections 2.4 and 3.3)."""

from dataclasses import dataclass
from typing import Self

from jetway.builder.manifest import Manifest, stage_layers


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPart:
    """The ranks of a stage share each of its layers, and stages share the layers out: rank = stage * tp_size + tp_rank."""

    rank: int
    tp_size: int
    num_stages: int
    num_layers: int  # of this rank's stage

    @classmethod
    def of(cls, manifest: Manifest, rank: int) -> Self:
        build = manifest.tensorrt
        assert build is not None and rank < build.num_ranks
        layers = stage_layers(manifest.num_hidden_layers, build.pp_size)[rank // build.tp_size]
        return cls(rank=rank, tp_size=build.tp_size, num_stages=build.pp_size, num_layers=len(layers))

    @property
    def num_ranks(self) -> int:
        return self.tp_size * self.num_stages

    @property
    def max_launches(self) -> int:
        """Steps that may be on the devices at once: one in each stage of a pipeline, else one behind the one that runs.

        A plan that comes after those of a pipeline may need the tokens of the first of them.
        """
        return max(self.num_stages, 2)

    @property
    def is_first_stage(self) -> bool:
        """It is given tokens; all others the hidden states of the stage before."""
        return self.rank < self.tp_size

    @property
    def is_last_stage(self) -> bool:
        """It gives logits, each of its ranks all of them; all others hidden states."""
        return self.rank >= self.first_rank_of_last_stage

    @property
    def first_rank_of_last_stage(self) -> int:
        return self.num_ranks - self.tp_size
