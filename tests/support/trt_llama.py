"""A Llama in numpy, f32, on packed tokens: everything but attention and its cache."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

Floats = NDArray[np.float32]
# Fields of a config.json; no two sizes alike, and a key head serves 5 query heads.
SMALL_MODEL: dict[str, Any] = {
    "hidden_size": 80,
    "num_hidden_layers": 3,
    "num_key_value_heads": 2,
    "num_attention_heads": 10,
    "head_dim": 16,
}


NUM_PADDED = 4  # columns of logits beyond the vocabulary, where the engine has zeros


class Llama:
    """The weights of a Hugging Face checkpoint of one file; its rotary embedding is the default one.

    As an engine it is the whole model; `trt_ranks` has its parts.
    """

    is_first_stage = True
    workspace: tuple[int, ...] = ()
    output = "logits"

    def __init__(self, checkpoint: Path) -> None:
        config = json.loads((checkpoint / "config.json").read_text())
        self._weights: dict[str, Floats] = load_file(checkpoint / "model.safetensors")
        self._epsilon: float = config["rms_norm_eps"]
        self.num_layers: int = config["num_hidden_layers"]
        self.num_heads: int = config["num_attention_heads"]
        self.num_kv_heads: int = config["num_key_value_heads"]
        self.vocab_size: int = config["vocab_size"]
        self.hidden_size: int = config["hidden_size"]
        self.head_size: int = config.get("head_dim") or config["hidden_size"] // self.num_heads
        theta = config.get("rope_theta") or config["rope_parameters"]["rope_theta"]
        frequencies = theta ** -(np.arange(0, self.head_size, 2) / self.head_size)
        angles = np.outer(np.arange(config["max_position_embeddings"]), frequencies)
        self._rotary_cos = np.cos(np.concatenate((angles, angles), axis=1)).astype(np.float32)[:, None]
        self._rotary_sin = np.sin(np.concatenate((angles, angles), axis=1)).astype(np.float32)[:, None]

    @property
    def output_width(self) -> int:
        return self.vocab_size + NUM_PADDED

    def enter(self, device: Mapping[str, NDArray[Any]]) -> Floats:
        """What the first layer is given, [T, hidden size]."""
        rows: Floats = self._weights["model.embed_tokens.weight"][device["input_ids"]]
        return rows

    def leave(self, x: Floats, device: Mapping[str, NDArray[Any]]) -> Floats:
        """What is made of the last layer's output: logits [B, padded vocabulary]."""
        return np.pad(self.logits(x[device["last_token_ids"] - 1]), ((0, 0), (0, NUM_PADDED)))

    def add_up(self, share: Floats) -> Floats:
        """The sum of all ranks' shares."""
        return share

    def queries_keys_values(self, layer: int, x: Floats, positions: NDArray[Any]) -> list[Floats]:
        """Each [T, heads, head_size], queries and keys rotated."""
        normed = self._norm(f"model.layers.{layer}.input_layernorm", x)
        projected = [
            self._linear(f"model.layers.{layer}.self_attn.{name}_proj", normed).reshape(len(x), -1, self.head_size)
            for name in "qkv"
        ]
        return [self._rotate(projected[0], positions), self._rotate(projected[1], positions), projected[2]]

    def after_attention(self, layer: int, x: Floats, attended: Floats) -> Floats:
        x = x + self.add_up(self._linear(f"model.layers.{layer}.self_attn.o_proj", attended.reshape(len(x), -1)))
        normed = self._norm(f"model.layers.{layer}.post_attention_layernorm", x)
        gate, up = (self._linear(f"model.layers.{layer}.mlp.{name}_proj", normed) for name in ("gate", "up"))
        return x + self.add_up(self._linear(f"model.layers.{layer}.mlp.down_proj", gate / (1 + np.exp(-gate)) * up))

    def logits(self, x: Floats) -> Floats:
        return self._linear("lm_head", self._norm("model.norm", x))

    def _linear(self, name: str, x: Floats) -> Floats:
        projected: Floats = x @ self._weights[f"{name}.weight"].T
        return projected

    def _norm(self, name: str, x: Floats) -> Floats:
        variance = (x * x).mean(axis=1, keepdims=True) + np.float32(self._epsilon)
        normed: Floats = x / np.sqrt(variance) * self._weights[f"{name}.weight"]
        return normed

    def _rotate(self, x: Floats, positions: NDArray[Any]) -> Floats:
        half = self.head_size // 2
        turned = np.concatenate((-x[..., half:], x[..., :half]), axis=-1)
        rotated: Floats = x * self._rotary_cos[positions] + turned * self._rotary_sin[positions]
        return rotated
