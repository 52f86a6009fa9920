"""The last stage: the engine as it was written, run step by step, against the Hugging Face model it came from."""

from dataclasses import dataclass

import numpy as np
import openvino as ov
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from .errors import VerifyError
from .spec import TOKENS_PER_BLOCK

PROMPT = (
    "A ferry crosses the strait twice a day. In winter it leaves at 7:45 and at 16:10, in summer every two hours "
    "from 6:00 to 20:00. Tickets cost 12 euros; children under six travel free."
)
NEW_TOKENS = 8
# Of the largest logit. Two correct f32 implementations differ by some 1e-5 of it, a wrong mask or rotation by 1e-1.
TOLERANCE = 1e-4


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far engine and model agreed."""

    num_tokens: int  # positions compared
    max_difference: float  # of any logit


def check(engine: ov.CompiledModel, model: PreTrainedModel, prompt: list[int]) -> Agreement:
    """Compare every logit of a prompt, computed in two chunks, and of a few greedy steps. Raises VerifyError.

    Within the tolerance, two argmaxes differ only where the model itself has two tokens less than twice that apart.
    """
    tokens = _greedy(model, prompt)
    with torch.inference_mode():
        expected: NDArray[np.float32] = model(torch.tensor([tokens])).logits[0].numpy()
    sequence = _PagedSequence(engine, len(tokens))
    steps = [prompt[:TOKENS_PER_BLOCK], prompt[TOKENS_PER_BLOCK:], *([token] for token in tokens[len(prompt) :])]
    computed = np.concatenate([sequence.compute(step) for step in steps if step])
    differences = np.abs(computed - expected).max(axis=1)
    difference, tolerance = float(differences.max()), TOLERANCE * float(np.abs(expected).max())
    if not difference <= tolerance:  # also where it is NaN
        position = int(differences.argmax())
        raise VerifyError(
            f"after {position + 1} tokens the engine continues with token {computed[position].argmax()}, the Hugging "
            f"Face model with {expected[position].argmax()}; their logits differ by {difference:.2g}, allowed are "
            f"{tolerance:.2g}. These versions of torch, transformers and openvino do not export this model correctly."
        )
    return Agreement(len(tokens), difference)


def _greedy(model: PreTrainedModel, prompt: list[int]) -> list[int]:
    """The prompt and its greedy continuation, whatever generation settings the checkpoint has."""
    tokens = list(prompt)
    with torch.inference_mode():
        for _ in range(NEW_TOKENS):
            tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
    return tokens


class _PagedSequence:
    """One sequence on a paged engine. Its blocks are out of order, which shows that the block table is followed."""

    def __init__(self, engine: ov.CompiledModel, num_tokens: int) -> None:
        num_blocks = -(-num_tokens // TOKENS_PER_BLOCK)
        self._block_table = np.arange(num_blocks, dtype=np.int32)[::-1].copy()
        self._num_past = 0
        self._request = engine.create_infer_request()
        for port in engine.inputs:
            if port.get_any_name().startswith(("key_cache.", "value_cache.")):
                _, *block_shape = port.get_partial_shape()
                shape = [num_blocks, *(size.get_length() for size in block_shape)]
                self._request.set_tensor(port, ov.Tensor(port.get_element_type(), ov.Shape(shape)))

    def compute(self, tokens: list[int]) -> NDArray[np.float32]:
        """The logits [T, vocab] of the sequence's next tokens."""
        past, end = self._num_past, self._num_past + len(tokens)
        self._num_past = end
        results = self._request.infer(
            {
                "input_ids": np.array(tokens, np.int64),
                "position_ids": np.arange(past, end, dtype=np.int64),
                "past_lens": np.array([past], np.int32),
                "subsequence_begins": np.array([0, len(tokens)], np.int32),
                "block_indices": self._block_table,
                "block_indices_begins": np.array([0, len(self._block_table)], np.int32),
                "max_context_len": np.array(end, np.int32),
            }
        )
        logits: NDArray[np.float32] = results["logits"]
        return logits[:, 0].copy()
