"""The parts of a Llama that an engine's ranks compute, from the builder's conversion of it, and what is between them.

Stages hand hidden states on, and the ranks of a stage add their shares up, inside their engines; here they are threads.
"""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from jetway.runtime.errors import EngineFailed
from tests.support.trt_llama import NUM_PADDED, Floats, Llama

TIMEOUT_S = 3.0  # of a rank that waits for another
# Of a layer, by TensorRT-LLM's name and by Hugging Face's.
NAMES = {
    "input_layernorm": "input_layernorm",
    "post_layernorm": "post_attention_layernorm",
    "attention.dense": "self_attn.o_proj",
    "mlp.fc": "mlp.gate_proj",
    "mlp.gate": "mlp.up_proj",
    "mlp.proj": "mlp.down_proj",
}


class Network:
    """Arrays on their way from rank to rank, in order."""

    def __init__(self) -> None:
        self._arrays = defaultdict[tuple[int, int], SimpleQueue[Floats]](SimpleQueue)

    def send(self, array: Floats, source: int, to: int) -> None:
        self._arrays[source, to].put(array.copy())

    def receive(self, source: int, to: int) -> Floats:
        """Raises EngineFailed, as NCCL's end does, when it does not come."""
        try:
            return self._arrays[source, to].get(timeout=TIMEOUT_S)
        except Empty as error:
            raise EngineFailed(f"rank {to} has nothing from rank {source}") from error


class RankLlama(Llama):
    """The layers of a rank's stage, and its share of each one's heads and columns."""

    def __init__(self, checkpoint: Path, converted: Path, rank: int, tp_size: int, network: Network) -> None:
        """`checkpoint` is Hugging Face's, for its config.json; `converted` holds the ranks' files."""
        super().__init__(checkpoint)
        weights = load_file(converted / f"rank{rank}.safetensors")
        self._rank, self._tp_size, self._network = rank, tp_size, network
        self.num_layers = sum(name.endswith("input_layernorm.weight") for name in weights)
        self.num_heads //= tp_size
        self.num_kv_heads = -(-self.num_kv_heads // tp_size)
        self.is_first_stage = "transformer.vocab_embedding.weight" in weights
        self._is_last_stage = "lm_head.weight" in weights
        self.output = "logits" if self._is_last_stage else "hidden_states_output"
        self.workspace = workspace_of(rank, tp_size) if tp_size > 1 else ()
        self._weights = self._by_their_first_names(weights)

    def _by_their_first_names(self, weights: Mapping[str, Floats]) -> dict[str, Floats]:
        ends = (("transformer.vocab_embedding", "model.embed_tokens"), ("transformer.ln_f", "model.norm"))
        named = {
            f"{name}.weight": weights[f"{theirs}.weight"]
            for theirs, name in (*ends, ("lm_head", "lm_head"))
            if f"{theirs}.weight" in weights
        }
        size = self.head_size
        for layer in range(self.num_layers):
            theirs, ours = f"transformer.layers.{layer}", f"model.layers.{layer}"
            named |= {f"{ours}.{name}.weight": weights[f"{theirs}.{their}.weight"] for their, name in NAMES.items()}
            heads = np.cumsum([self.num_heads, self.num_kv_heads])
            shares = np.split(weights[f"{theirs}.attention.qkv.weight"], heads * size)
            assert len(shares[2]) == self.num_kv_heads * size
            named |= {f"{ours}.self_attn.{name}_proj.weight": share for name, share in zip("qkv", shares, strict=True)}
        return named

    @property
    def output_width(self) -> int:
        return super().output_width if self._is_last_stage else self.hidden_size

    def enter(self, device: Mapping[str, NDArray[Any]]) -> Floats:
        """Only the shape of `hidden_states_input` counts."""
        if self.is_first_stage:
            return super().enter(device)
        x = self._network.receive(self._rank - self._tp_size, self._rank)
        assert x.shape == device["hidden_states_input"].shape, "a stage computes another step than the one before it"
        return x

    def leave(self, x: Floats, device: Mapping[str, NDArray[Any]]) -> Floats:
        if not self._is_last_stage:
            self._network.send(x, self._rank, self._rank + self._tp_size)
            return x
        shares = self._exchanged(self.logits(x[device["last_token_ids"] - 1]))
        logits = np.concatenate(shares, axis=1)[:, : self.vocab_size]
        return np.pad(logits, ((0, 0), (0, NUM_PADDED)))

    def add_up(self, share: Floats) -> Floats:
        total: Floats = np.sum(self._exchanged(share), axis=0)
        return total

    def _exchanged(self, share: Floats) -> list[Floats]:
        """The shares of the stage's ranks, in order."""
        first = self._rank - self._rank % self._tp_size
        peers = range(first, first + self._tp_size)
        for peer in peers:
            self._network.send(share, self._rank, peer)
        return [self._network.receive(peer, self._rank) for peer in peers]


def workspace_of(rank: int, tp_size: int) -> tuple[int, ...]:
    """What TensorRT-LLM would give a rank: here any numbers that no other has."""
    return tuple(range(1000 * rank, 1000 * rank + 7 * tp_size + 3))
