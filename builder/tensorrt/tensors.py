"""Which parts of a Hugging Face checkpoint each tensor of a rank's file is made of (contracts/tensorrt-llm.md, 2.4).

Tables only; nothing is read. All matrices are [out, in].
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from .decoder import Decoder
from .parallel import Rank

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
LAYERS = "transformer.layers."


class Part(NamedTuple):
    """Rows and columns of one tensor of the checkpoint."""

    tensor: str
    rows: range
    columns: range | None  # None: a vector, which has rows only

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.rows),) if self.columns is None else (len(self.rows), len(self.columns))


@dataclass(frozen=True, slots=True)
class RankTensor:
    """Its parts one below the other, then zeros."""

    name: str
    parts: tuple[Part, ...]
    num_padding_rows: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        num_rows = sum(len(part.rows) for part in self.parts) + self.num_padding_rows
        return (num_rows, *self.parts[0].shape[1:])

    @property
    def is_layer_matrix(self) -> bool:
        """What a quantized engine has quantized: not norms and biases, and neither embedding nor head."""
        return self.name.startswith(LAYERS) and len(self.shape) == 2


def of_rank(decoder: Decoder, rank: Rank) -> Iterator[RankTensor]:
    """All of a rank's tensors, of parts by the names that an untied model in transformers has for them."""
    config = decoder.config
    vocab, hidden = range(config.vocab_size), range(config.hidden_size)
    if rank.is_first_stage:
        yield RankTensor("transformer.vocab_embedding.weight", (Part(EMBEDDING, vocab, hidden),))
    for local, layer in enumerate(rank.layers):
        yield from _Layer(decoder, rank, f"model.layers.{layer}.", f"{LAYERS}{local}.").tensors()
    if rank.is_last_stage:
        yield RankTensor("transformer.ln_f.weight", (Part("model.norm.weight", hidden, None),))
        each = -(-config.vocab_size // rank.tp_size)
        rows = vocab[rank.tp_rank * each : (rank.tp_rank + 1) * each]
        yield RankTensor("lm_head.weight", (Part(HEAD, rows, hidden),), num_padding_rows=each - len(rows))


@dataclass(frozen=True, slots=True)
class _Layer:
    """One layer's tensors: Hugging Face's under `source`, the rank's under `target`."""

    decoder: Decoder
    rank: Rank
    source: str
    target: str

    def tensors(self) -> Iterator[RankTensor]:
        decoder, hidden = self.decoder, range(self.decoder.config.hidden_size)
        yield self._replicated("input_layernorm.weight", "input_layernorm.weight")
        yield from self._attention(hidden)
        yield self._replicated("post_layernorm.weight", "post_attention_layernorm.weight")
        share = self.rank.share(decoder.intermediate_size)
        for name, projection in (("fc", "gate_proj"), ("gate", "up_proj")):  # TensorRT-LLM activates fc's output
            yield self._tensor(f"mlp.{name}.weight", Part(f"mlp.{projection}.weight", share, hidden))
            if decoder.has_mlp_bias:
                yield self._tensor(f"mlp.{name}.bias", Part(f"mlp.{projection}.bias", share, None))
        yield self._tensor("mlp.proj.weight", Part("mlp.down_proj.weight", hidden, share))
        if decoder.has_mlp_bias:  # added once, after the ranks' sums
            yield self._replicated("mlp.proj.bias", "mlp.down_proj.bias")

    def _attention(self, hidden: range) -> Iterator[RankTensor]:
        config, rank = self.decoder.config, self.rank
        queries = _rows_of_heads(rank.share(config.num_attention_heads), config.head_size)
        keys = _rows_of_heads(rank.kv_heads(config.num_key_value_heads), config.head_size)
        projections = (("q_proj", queries), ("k_proj", keys), ("v_proj", keys))
        weights = (Part(f"self_attn.{name}.weight", rows, hidden) for name, rows in projections)
        yield self._tensor("attention.qkv.weight", *weights)
        if self.decoder.has_qkv_bias:
            biases = (Part(f"self_attn.{name}.bias", rows, None) for name, rows in projections)
            yield self._tensor("attention.qkv.bias", *biases)
        yield self._tensor("attention.dense.weight", Part("self_attn.o_proj.weight", hidden, queries))
        if self.decoder.has_dense_bias:  # added once, after the ranks' sums
            yield self._replicated("attention.dense.bias", "self_attn.o_proj.bias")
        if self.decoder.has_qk_norm:
            head = range(config.head_size)
            yield self._tensor("attention.q_layernorm.weight", Part("self_attn.q_norm.weight", head, None))
            yield self._tensor("attention.k_layernorm.weight", Part("self_attn.k_norm.weight", head, None))

    def _replicated(self, name: str, source: str) -> RankTensor:
        """A vector of the hidden size, the same on every rank."""
        return self._tensor(name, Part(source, range(self.decoder.config.hidden_size), None))

    def _tensor(self, name: str, *parts: Part) -> RankTensor:
        return RankTensor(self.target + name, tuple(part._replace(tensor=self.source + part.tensor) for part in parts))


def _rows_of_heads(heads: range, head_size: int) -> range:
    return range(heads.start * head_size, heads.stop * head_size)
