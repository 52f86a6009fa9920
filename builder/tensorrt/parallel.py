"""Which rank holds what: the layers of its pipeline stage, and its share of each layer's heads, rows and columns."""

from dataclasses import dataclass

from jetway.builder.errors import OptionError
from jetway.builder.model_config import ModelConfig

from .engine_config import stage_layers
from .options import TensorRtOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """One engine of a group. Ranks count through a stage's tensor-parallel shares first, then through the stages."""

    index: int
    tp_rank: int
    tp_size: int
    layers: range  # of the whole model; the rank's own files count them from 0
    is_first_stage: bool  # holds the embedding
    is_last_stage: bool  # holds the last norm and the output head

    def share(self, size: int) -> range:
        """The rank's part of `size` equal things, of which every rank has as many."""
        each = size // self.tp_size
        return range(self.tp_rank * each, (self.tp_rank + 1) * each)

    def kv_heads(self, num_kv_heads: int) -> range:
        """The rank's heads of the keys and values; with fewer heads than ranks, neighbours hold the same one."""
        if num_kv_heads >= self.tp_size:
            return self.share(num_kv_heads)
        head = self.tp_rank * num_kv_heads // self.tp_size
        return range(head, head + 1)


def ranks(options: TensorRtOptions, num_layers: int) -> tuple[Rank, ...]:
    """All ranks, in order."""
    return tuple(
        Rank(
            index=stage * options.tp_size + tp_rank,
            tp_rank=tp_rank,
            tp_size=options.tp_size,
            layers=layers,
            is_first_stage=stage == 0,
            is_last_stage=stage == options.pp_size - 1,
        )
        for stage, layers in enumerate(stage_layers(num_layers, options.pp_size))
        for tp_rank in range(options.tp_size)
    )


def check(options: TensorRtOptions, config: ModelConfig) -> None:
    """Raise OptionError for a model that does not divide among the ranks."""
    tp_size, kv_heads = options.tp_size, config.num_key_value_heads
    if config.num_attention_heads % tp_size:
        raise _indivisible(tp_size, "num_attention_heads", config.num_attention_heads)
    if kv_heads % tp_size and tp_size % kv_heads:
        raise OptionError(
            f"--tp-size {tp_size}: num_key_value_heads {kv_heads} is neither a multiple nor a divisor of it. "
            "Pass one that divides, or that it divides."
        )
    if options.pp_size > config.num_hidden_layers:
        raise OptionError(
            f"--pp-size {options.pp_size}: the model has num_hidden_layers {config.num_hidden_layers}. "
            "Pass no more than that."
        )


def check_columns(tp_size: int, intermediate_size: int) -> None:
    """The same for the columns of the MLP."""
    if intermediate_size % tp_size:
        raise _indivisible(tp_size, "intermediate_size", intermediate_size)


def _indivisible(tp_size: int, field: str, size: int) -> OptionError:
    return OptionError(f"--tp-size {tp_size}: {field} {size} is not a multiple of it. Pass a divisor.")
