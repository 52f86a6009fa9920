"""Greedy continuations: what Hugging Face computes from a checkpoint, and what the executor computes from an engine."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from jetway.runtime.executor.openvino import OpenVinoEngine
from jetway.runtime.executor.openvino_model import Resources
from jetway.scheduler.request import SamplingParams
from tests.runtime.executor.driving import Job, generate

# Shorter and longer than a block, and than the windows of tests.
PROMPTS = [
    [7, 201, 33, 150, 90, 12, 255, 64],
    [(11 * index + 5) % 300 for index in range(75)],
    [299],
    [(17 * index + 40) % 300 for index in range(33)],
]
CHUNK_TOKENS = 32
MIN_MARGIN = 0.01  # between the two best logits: what is closer, another batch may decide otherwise (DESIGN section 5)


def huggingface_continuations(checkpoint: Path, num_tokens: int) -> list[list[int]]:
    """PROMPTS, each alone, continued by `generate` in f32, as far as its tokens are clear.

    `checkpoint` is a directory or a GGUF file.
    """
    source = {"gguf_file": checkpoint.name} if checkpoint.is_file() else {}
    directory = checkpoint.parent if checkpoint.is_file() else checkpoint
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, **source)
    return [_continue(model, prompt, num_tokens) for prompt in PROMPTS]


def _continue(model: Any, prompt: list[int], num_tokens: int) -> list[int]:
    """`model` is a PreTrainedModel that generates, for which transformers has no type."""
    result = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
        max_new_tokens=num_tokens,
        do_sample=False,
        eos_token_id=None,
        output_logits=True,
        return_dict_in_generate=True,
    )
    best_two = torch.cat(result.logits).topk(2, dim=-1).values
    is_clear = (best_two[:, 0] - best_two[:, 1]) >= MIN_MARGIN
    num_clear = int(is_clear.int().cumprod(0).sum())
    tokens: list[int] = result.sequences[0, len(prompt) :].tolist()
    return tokens[:num_clear]


def assert_continues(engine: Path, expected: list[list[int]], num_tokens: int) -> None:
    """The engine's tokens are the expected ones, and these are enough to mean something."""
    assert sum(map(len, expected)) >= 2 * num_tokens
    computed = engine_continuations(engine, num_tokens)
    clear = [tokens[: len(known)] for tokens, known in zip(computed, expected, strict=True)]
    assert clear == expected


def engine_continuations(engine: Path, num_tokens: int) -> list[list[int]]:
    """PROMPTS, all in one batch on paged KV, prefilled in chunks."""
    loaded = OpenVinoEngine.load(engine, Resources(num_device_blocks=64))
    jobs = [Job(prompt, num_tokens, SamplingParams(temperature=0.0, ignore_eos=True)) for prompt in PROMPTS]
    return generate(loaded, jobs, chunk_tokens=CHUNK_TOKENS)
