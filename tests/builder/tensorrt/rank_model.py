"""A second reading of TensorRT-LLM's checkpoints: the model computed from config.json and the ranks' files alone.

By contracts/tensorrt-llm.md section 2.4, in numpy, and without anything of the builder. The ranks of a stage compute
their shares apart and are summed as an all-reduce does.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

Array = NDArray[np.float32]
Ranks = list[dict[str, Array]]


@dataclass
class RankModel:
    """The files of a checkpoint whose dtype is float32."""

    config: dict[str, Any]
    ranks: Ranks

    @classmethod
    def load(cls, directory: Path) -> "RankModel":
        config = json.loads((directory / "config.json").read_text())
        files = [directory / f"rank{rank}.safetensors" for rank in range(config["mapping"]["world_size"])]
        return cls(config, [load_file(file) for file in files])

    def logits(self, tokens: list[int]) -> Array:
        """[T, vocab], of one prompt."""
        mapping = self.config["mapping"]
        hidden: Array = self.ranks[0]["transformer.vocab_embedding.weight"][tokens]
        for stage in range(mapping["pp_size"]):
            ranks = self.ranks[stage * mapping["tp_size"] : (stage + 1) * mapping["tp_size"]]
            for layer in range(num_layers(ranks[0])):
                hidden = self._layer(ranks, f"transformer.layers.{layer}.", hidden)
        normed = self._norm(hidden, same(ranks, "transformer.ln_f.weight"))
        heads = [rank["lm_head.weight"] for rank in ranks]
        assert len({head.shape for head in heads}) == 1
        return np.concatenate([normed @ head.T for head in heads], axis=1)[:, : self.config["vocab_size"]]

    def _layer(self, ranks: Ranks, prefix: str, hidden: Array) -> Array:
        normed = self._norm(hidden, same(ranks, prefix + "input_layernorm.weight"))
        attended = sum(self._attention(rank, prefix + "attention.", normed) for rank in ranks)
        hidden = hidden + attended + self._bias(ranks, prefix + "attention.dense.bias", self.config["attn_bias"])
        normed = self._norm(hidden, same(ranks, prefix + "post_layernorm.weight"))
        widened = sum(self._mlp(rank, prefix + "mlp.", normed) for rank in ranks)
        return hidden + widened + self._bias(ranks, prefix + "mlp.proj.bias", self.config["mlp_bias"])

    def _attention(self, rank: dict[str, Array], prefix: str, hidden: Array) -> Array:
        config, tp_size = self.config, self.config["mapping"]["tp_size"]
        num_tokens, size = len(hidden), config["head_size"]
        num_heads, num_kv_heads = config["num_attention_heads"] // tp_size, -(-config["num_key_value_heads"] // tp_size)
        qkv = hidden @ rank[prefix + "qkv.weight"].T
        if config["attn_bias"]:
            qkv = qkv + rank[prefix + "qkv.bias"]
        assert qkv.shape == (num_tokens, (num_heads + 2 * num_kv_heads) * size)
        heads = qkv.reshape(num_tokens, -1, size)
        q, k, v = np.split(heads, [num_heads, num_heads + num_kv_heads], axis=1)
        if config.get("qwen_type") == "qwen3":
            q = self._norm(q, rank[prefix + "q_layernorm.weight"])
            k = self._norm(k, rank[prefix + "k_layernorm.weight"])
        q, k = self._rotate(q), self._rotate(k)
        k, v = (np.repeat(each, num_heads // num_kv_heads, axis=1) for each in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(size)
        scores = np.where(np.tri(num_tokens, dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        mixed = np.einsum("hqk,khd->qhd", weights, v).reshape(num_tokens, num_heads * size)
        return np.asarray(mixed @ rank[prefix + "dense.weight"].T, np.float32)

    def _mlp(self, rank: dict[str, Array], prefix: str, hidden: Array) -> Array:
        assert self.config["hidden_act"] == "silu"
        fc, gate = hidden @ rank[prefix + "fc.weight"].T, hidden @ rank[prefix + "gate.weight"].T
        if self.config["mlp_bias"]:
            fc, gate = fc + rank[prefix + "fc.bias"], gate + rank[prefix + "gate.bias"]
        return np.asarray((fc / (1 + np.exp(-fc)) * gate) @ rank[prefix + "proj.weight"].T, np.float32)

    def _norm(self, values: Array, weight: Array) -> Array:
        mean = np.square(values).mean(axis=-1, keepdims=True)
        return np.asarray(values / np.sqrt(mean + self.config["norm_epsilon"]) * weight, np.float32)

    def _rotate(self, heads: Array) -> Array:
        """GPT-NeoX's rotation: the first half of a head with the second."""
        frequencies, scale = rope_frequencies(self.config)
        angles = np.arange(len(heads))[:, None] * frequencies
        cos, sin = (np.concatenate([part, part], axis=1)[:, None] * scale for part in (np.cos(angles), np.sin(angles)))
        first, second = np.split(heads, 2, axis=-1)
        return np.asarray(heads * cos + np.concatenate([-second, first], axis=-1) * sin, np.float32)

    def _bias(self, ranks: Ranks, name: str, has_bias: bool) -> Array | float:
        """Added once to the ranks' sum. Qwen's attention has none behind its heads."""
        if not has_bias or (name.endswith("dense.bias") and "qwen_type" in self.config):
            return 0.0
        return same(ranks, name)


def num_layers(rank: dict[str, Array]) -> int:
    return len([name for name in rank if name.endswith("input_layernorm.weight")])


def same(ranks: Ranks, name: str) -> Array:
    """A tensor that every rank has in whole."""
    for rank in ranks:
        np.testing.assert_array_equal(rank[name], ranks[0][name])
    return ranks[0][name]


def rope_frequencies(config: dict[str, Any]) -> tuple[NDArray[np.float64], float]:
    """Of `rotary_base` and `rotary_scaling`: radians a position, [head_size / 2], and the rotation's length."""
    size, base, scaling = config["head_size"], config["rotary_base"], config["rotary_scaling"]
    plain = base ** (-np.arange(0, size, 2) / size)
    if scaling is None:
        return plain, 1.0
    assert scaling["type"] == scaling["rope_type"]
    slowed = plain / scaling["factor"]
    if scaling["type"] == "linear":
        return slowed, 1.0
    original = scaling["original_max_position_embeddings"]
    if scaling["type"] == "llama3":
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        smooth = np.clip((original * plain / (2 * np.pi) - low) / (high - low), 0, 1)
        return (1 - smooth) * slowed + smooth * plain, 1.0
    assert scaling["type"] == "yarn"
    bounds = [
        size * np.log(original / (turns * 2 * np.pi)) / (2 * np.log(base))
        for turns in (scaling.get("beta_fast", 32), scaling.get("beta_slow", 1))
    ]
    low, high = max(np.floor(bounds[0]), 0), min(np.ceil(bounds[1]), size - 1)
    ramp = np.clip((np.arange(size // 2) - low) / (high - low), 0, 1)
    return slowed * ramp + plain * (1 - ramp), 0.1 * np.log(scaling["factor"]) + 1
