"""Tiny random checkpoints, made in a moment: two layers, a byte-level tokenizer, a chat template.

Importing this module is quick; torch and transformers load when a checkpoint is made.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict, Unpack

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CORPUS = (
    "the ferry leaves the harbour at seven and the other ferry leaves the island at eight",
    "there is a harbour on the other island, and every summer the ferry returns at nine",
)
VOCAB_SIZE = 300
MODEL_TYPES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "GPT2LMHeadModel": "gpt2",
    "GemmaForCausalLM": "gemma",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3_text",
    "PhiForCausalLM": "phi",
    "Phi3ForCausalLM": "phi3",
}


class Shape(TypedDict, total=False):
    """Fields of config.json that a test may want otherwise, by Llama's names."""

    num_hidden_layers: int
    hidden_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    tie_word_embeddings: bool
    vocab_size: int
    rope_parameters: dict[str, object]
    sliding_window: int | None


def make_llama_checkpoint(
    directory: Path,
    *,
    architecture: str = "LlamaForCausalLM",
    dtype: str = "float32",
    max_shard_size: str = "1GB",
    **shape: Unpack[Shape],
) -> Path:
    """Write a checkpoint of an architecture with Llama's names; the same arguments give the same weights."""
    return make_checkpoint(directory, architecture, dict(shape), dtype=dtype, max_shard_size=max_shard_size)


def make_checkpoint(
    directory: Path,
    architecture: str,
    fields: Mapping[str, Any],
    *,
    dtype: str = "float32",
    max_shard_size: str = "1GB",
    chat_template: str | None = CHAT_TEMPLATE,
) -> Path:
    """Write a checkpoint in Hugging Face's layout, with `fields` of config.json besides small sizes.

    The same arguments give the same weights. Returns `directory`.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes: dict[str, Any] = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "initializer_range": 0.2,  # wide, so that the best token is far ahead of the next
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": None,  # else its embedding is zero
    }
    config = AutoConfig.for_model(MODEL_TYPES[architecture], **{**sizes, **fields})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]  # transformers leaves it so
            config, dtype=getattr(torch, dtype)
        )
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or "norm" in name:  # which start at zero or one and would hide their absence
                parameter.data += 0.2 * torch.randn_like(parameter)
    model.save_pretrained(directory, max_shard_size=max_shard_size)
    save_tokenizer(directory, chat_template)
    return directory


def save_tokenizer(directory: Path, chat_template: str | None) -> None:
    """Write a byte-level BPE tokenizer of VOCAB_SIZE tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]  # transformers leaves it so
        tokenizer_object=tokenizer,
        unk_token=SPECIAL_TOKENS[0],
        bos_token=SPECIAL_TOKENS[1],
        eos_token=SPECIAL_TOKENS[2],
        pad_token=SPECIAL_TOKENS[2],
        chat_template=chat_template,
    ).save_pretrained(directory)
