"""`tensorrt_llm` as inflight_batcher_llm has it: token ids in, token ids out, new ones in each response of a stream."""

from collections.abc import Iterator, Sequence

from jetway.runtime.errors import InvalidArgument
from jetway.runtime.gateway.answer import Delta
from jetway.runtime.gateway.kserve.signature import Inputs, InputSpec, TensorSpec
from jetway.runtime.gateway.kserve.tensor import Tensor
from jetway.runtime.gateway.text.vocabulary import Vocabulary

from . import chain
from .base import STOP_INPUT, Asked

_ABSENT = (
    InputSpec("bad_words_list", "INT32", (2, -1), neutral=(0, -1)),
    InputSpec("embedding_bias", "FP32", (-1,), neutral=(0.0,)),
    InputSpec("decoder_input_ids", "INT32", (-1,), neutral=()),
    InputSpec("draft_input_ids", "INT32", (-1,), neutral=()),
    InputSpec("prompt_table_extra_ids", "UINT64", (-1,), neutral=()),
    InputSpec("runtime_top_p_min", "FP32", neutral=(0.0,)),
    InputSpec("runtime_top_p_decay", "FP32", neutral=(0.0, 1.0)),
)


class TokensDialect:
    """The vocabulary spells stop words, which come as token ids."""

    inputs = (
        InputSpec("input_ids", "INT32", (-1,), required=True),
        InputSpec("input_lengths", "INT32", required=True),
        InputSpec("request_output_len", "INT32", required=True),
        InputSpec("streaming", "BOOL"),
        InputSpec("runtime_top_k", "INT32"),
        InputSpec("runtime_top_p", "FP32"),
        InputSpec("stop_words_list", "INT32", (2, -1)),
        InputSpec(STOP_INPUT, "BOOL"),
        InputSpec("len_penalty", "FP32"),  # of beams only
        *chain.INPUTS,
        *_ABSENT,
    )
    outputs = (
        TensorSpec("output_ids", "INT32", (-1, -1)),
        TensorSpec("sequence_length", "INT32", (-1,)),
        *chain.OUTPUTS,
    )
    fields = chain.FIELDS | {
        "max_tokens": ("request_output_len",),
        "top_k": ("runtime_top_k",),
        "top_p": ("runtime_top_p",),
        "stop": ("stop_words_list",),
    }
    batched = True
    acknowledges_stop = True

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    def parse(self, inputs: Inputs) -> Asked:
        ids = inputs.integers("input_ids")
        length = inputs.integer("input_lengths") or 0
        if not 1 <= length <= len(ids):
            raise InvalidArgument(f"input_lengths must be in [1, {len(ids)}], not {length}", param="input_lengths")
        if min(ids[:length]) < 0:
            raise InvalidArgument(f"input_ids must not be negative; one is {min(ids[:length])}", param="input_ids")
        return Asked(
            prompt=tuple(ids[:length]),
            sampling=chain.sampling(inputs, "runtime_top_k", "runtime_top_p"),
            seed=chain.seed(inputs),
            n=inputs.integer("num_return_sequences") or 1,
            max_tokens=inputs.integer("request_output_len") or 0,
            stop=tuple(self._spelled(word) for word in _words(inputs.integers("stop_words_list"))),
            stream=inputs.flag("streaming"),
            shows=chain.shows(inputs),
        )

    def writer(self, asked: Asked, num_prompt_tokens: int) -> "TokensWriter":
        return TokensWriter(asked, num_prompt_tokens)

    def _spelled(self, word: Sequence[int]) -> str:
        for token_id in word:
            if not self._vocabulary.bytes_of(token_id):
                raise InvalidArgument(f"stop_words_list holds {token_id}, which is no token", param="stop_words_list")
        spelled = b"".join(map(self._vocabulary.bytes_of, word))
        try:
            return spelled.decode()
        except UnicodeDecodeError as error:
            raise InvalidArgument(f"the stop word {list(word)} is no text", param="stop_words_list") from error


class TokensWriter:
    def __init__(self, asked: Asked, num_prompt_tokens: int) -> None:
        self._chain = chain.ChainWriter(asked, num_prompt_tokens)
        self._prefix = list(asked.prompt) if self._chain.shows_prompt and isinstance(asked.prompt, tuple) else []

    def says(self, delta: Delta) -> bool:
        return bool(delta.piece.token_ids)

    def outputs(self, delta: Delta) -> list[Tensor]:
        ids = [*self._prefix, *delta.piece.token_ids]
        return [
            Tensor("output_ids", "INT32", (1, 1, len(ids)), ids),
            Tensor("sequence_length", "INT32", (1, 1), [len(ids)]),
            *self._chain.beside(delta),
        ]


def _words(packed: Sequence[int]) -> Iterator[Sequence[int]]:
    """Two rows of equal length: the words' tokens one after the other, then where each word ends; -1 fills the rows."""
    half = len(packed) // 2
    tokens, ends = packed[:half], packed[half:]
    start = 0
    for end in ends:
        if end < 0:
            return
        if not start < end <= half or min(tokens[start:end]) < 0:
            raise InvalidArgument("stop_words_list must hold tokens and the ends of words", param="stop_words_list")
        yield tokens[start:end]
        start = end
