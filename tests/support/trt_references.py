"""What Hugging Face generates, greedily and in f32, from prompts some of which begin alike."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

MIN_MARGIN = 0.01  # between the two best logits: what is closer, another batch may decide otherwise (DESIGN section 5)


@dataclass(frozen=True, slots=True)
class Reference:
    prompt: list[int]
    tokens: list[int]
    logprobs: list[float]  # of each token


def references(
    checkpoint: Path, *, num_prompts: int, num_tokens: int, block_size: int = 4, min_margin: float = MIN_MARGIN
) -> list[Reference]:
    """Continuations whose every token is clear; prompts are longer where blocks are."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    found: list[Reference] = []
    for _, group in groupby(sorted(_prompts(model.config.vocab_size, num_prompts, block_size), key=len), key=len):
        prompts = list(group)  # of one length, so nothing is padded
        result = model.generate(
            torch.tensor(prompts),
            attention_mask=torch.ones(len(prompts), len(prompts[0]), dtype=torch.int64),
            max_new_tokens=num_tokens,
            do_sample=False,
            eos_token_id=None,
            output_logits=True,
            return_dict_in_generate=True,
        )
        logits = torch.stack(result.logits, dim=1)
        margins = logits.topk(2, dim=-1).values.diff(dim=-1).abs().amin(dim=(1, 2))
        tokens = result.sequences[:, len(prompts[0]) :]
        logprobs = logits.log_softmax(dim=-1).gather(2, tokens[:, :, None])[:, :, 0]
        for row, prompt in enumerate(prompts):
            if margins[row] >= min_margin:
                found.append(Reference(prompt, tokens[row].tolist(), logprobs[row].tolist()))
    return found


def _prompts(vocab_size: int, count: int, block_size: int) -> Iterator[list[int]]:
    """Lengths on both sides of a block's, and more than one chunk's; two of three share one of four beginnings."""
    rng = random.Random(6)
    beginnings = [[rng.randrange(vocab_size) for _ in range(5 * block_size + 1)] for _ in range(4)]
    lengths = [1, block_size - 1, block_size, block_size + 1, 2 * block_size, 3 * block_size + 1, 4 * block_size]
    lengths += [6 * block_size + 1, 7 * block_size + 2, 9 * block_size + 2]
    for _ in range(count):
        length = rng.choice(lengths)
        own = [rng.randrange(vocab_size) for _ in range(length)]
        shared = rng.choice(beginnings)[: rng.choice([0, 2 * block_size, 5 * block_size + 1])]
        yield [*shared, *own][:length]
