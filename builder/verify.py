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
NUM_DECODES = 8  # the prompt's last tokens are computed one by one, as generated ones are
# Of an exact engine: the largest difference of any logit, over the largest logit. Two correct f32 implementations differ
# by some 1e-5 of it, a wrong mask or rotation by 1e-1.
TOLERANCE = 1e-4
# Of a lossy one (int8 weights, u8 cache): the root mean square of all differences over the standard deviation of the
# logits. Seen: 0.005 to 0.02 for a u8 cache, 0.02 to 0.06 for int8 weights; 0.7 to 1.4 for a wrong mask or rotation.
LOSSY_TOLERANCE = 0.25

Logits = NDArray[np.float32]  # [T, vocab]


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far engine and model agreed."""

    num_tokens: int  # positions compared
    difference: float  # by the measure of the engine's tolerance


def check(engine: ov.CompiledModel, model: PreTrainedModel, prompt: list[int], *, lossy: bool) -> Agreement:
    """Compare every logit of a prompt, which the engine computes in chunks and then token by token. Raises VerifyError.

    Within TOLERANCE, two argmaxes differ only where the model itself has two tokens less than twice that apart. Within
    LOSSY_TOLERANCE the engine computes this model and no other, but its tokens may differ.
    """
    expected = _expected(model, prompt)
    sequence = _PagedSequence(engine, len(prompt))
    prefill, decodes = prompt[:-NUM_DECODES], prompt[-NUM_DECODES:]
    steps = [prefill[:TOKENS_PER_BLOCK], prefill[TOKENS_PER_BLOCK:], *([token] for token in decodes)]
    computed = np.concatenate([sequence.compute(step) for step in steps if step])
    difference = _noise(computed, expected) if lossy else _largest_difference(computed, expected)
    tolerance = LOSSY_TOLERANCE if lossy else TOLERANCE
    if not difference <= tolerance:  # also where it is NaN
        position = int(np.abs(computed - expected).max(axis=1).argmax())
        raise VerifyError(
            f"after {position + 1} tokens the engine continues with token {computed[position].argmax()}, the Hugging "
            f"Face model with {expected[position].argmax()}; over all their logits differ by {difference:.2g} of their "
            f"size, allowed are {tolerance:.2g}. These versions of torch, transformers and openvino do not export this "
            "model correctly."
        )
    return Agreement(len(prompt), difference)


def _expected(model: PreTrainedModel, prompt: list[int]) -> Logits:
    try:
        with torch.inference_mode():
            logits: Logits = model(torch.tensor([prompt])).logits[0].numpy()
    except Exception as error:  # transformers has no error of its own
        raise VerifyError(f"Hugging Face cannot compute this model: {error}") from error
    return logits


def _largest_difference(computed: Logits, expected: Logits) -> float:
    return float(np.abs(computed - expected).max()) / (float(np.abs(expected).max()) or 1.0)


def _noise(computed: Logits, expected: Logits) -> float:
    return float(np.sqrt(np.square(computed - expected).mean())) / (float(expected.std()) or 1.0)


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
