"""Chooses the prompts on which greedy tokens must equal Hugging Face's: `python -m tests.support.choose_prompts`.

By the equality rule (DESIGN section 5) another batch composition gives the same token wherever the reference's top-two
margin is clear. So a prompt is kept only if, at every generated step, the best logit is at least MIN_MARGIN above the
second, and generation does not meet an end token.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.conftest import DEMO_CHECKPOINT, ROOT, SHARED

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

OUTPUT = ROOT / "tests" / "data" / "greedy_smollm2.jsonl"
NUM_PROMPTS = 32
SHORTEST_TOKENS = 3
LONGEST_TOKENS = 400
NEW_TOKENS = 24
MIN_MARGIN = 0.01  # f32 logits move by some 1e-4 with the batch


@dataclass(frozen=True, slots=True)
class Example:
    """One prompt and its reference continuation, as one line of the file."""

    prompt_ids: list[int]
    output_ids: list[int]
    min_margin: float  # the smallest distance of the two best logits over all steps
    source: str  # the row of the prompts' file that the text begins


def main() -> None:
    """Write OUTPUT anew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, default=DEMO_CHECKPOINT)
    parser.add_argument("--texts", type=Path, default=SHARED / "data" / "prompts_mixed.jsonl")
    arguments = parser.parse_args()

    from jetway.builder import checkpoint, offline

    offline.enforce()
    from jetway.builder import huggingface

    source = checkpoint.find(arguments.checkpoint)
    examples = choose(huggingface.load_model(source), huggingface.load_tokenizer(source), arguments.texts)
    with OUTPUT.open("w", encoding="utf-8") as file:
        for example in examples:
            print(len(example.prompt_ids), f"{example.min_margin:.3f}", example.source, flush=True)
            file.write(json.dumps(asdict(example), separators=(",", ":")) + "\n")


def lengths() -> list[int]:
    """NUM_PROMPTS different prompt lengths, denser where they are short."""
    ratio = (LONGEST_TOKENS / SHORTEST_TOKENS) ** (1 / (NUM_PROMPTS - 1))
    found: list[int] = []
    for index in range(NUM_PROMPTS):
        found.append(max(round(SHORTEST_TOKENS * ratio**index), found[-1] + 1 if found else 0))
    return found


def choose(model: Any, tokenizer: "PreTrainedTokenizerFast", texts: Path) -> Iterator[Example]:
    """For every length the first unused text that has so many tokens and a clear continuation.

    `model` is a PreTrainedModel that generates, for which transformers has no type.
    """
    rows = [json.loads(line) for line in texts.read_text(encoding="utf-8").splitlines()]
    unused = {row["id"]: tokenizer.encode(row["turns"][0]) for row in rows}
    for length in lengths():
        for name in [name for name, ids in unused.items() if len(ids) >= length]:
            example = continue_greedily(model, unused.pop(name)[:length], name)
            if example is not None:
                yield example
                break


def continue_greedily(model: Any, prompt_ids: list[int], source: str) -> Example | None:
    """The reference continuation, or None where it is not clear throughout or ends early."""
    import torch

    result = model.generate(
        torch.tensor([prompt_ids]),
        attention_mask=torch.ones(1, len(prompt_ids), dtype=torch.int64),
        max_new_tokens=NEW_TOKENS,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
    )
    output_ids: list[int] = result.sequences[0, len(prompt_ids) :].tolist()
    best_two = torch.cat(result.logits).topk(2, dim=-1).values
    min_margin = float((best_two[:, 0] - best_two[:, 1]).min())
    if (
        len(output_ids) < NEW_TOKENS
        or output_ids[-1] == model.generation_config.eos_token_id
        or min_margin < MIN_MARGIN
    ):
        return None
    return Example(prompt_ids, output_ids, round(min_margin, 4), source)


if __name__ == "__main__":
    main()
