"""`ensemble` and `tensorrt_llm_bls`: text in, text out, a delta in each response of a stream."""

from jetway.runtime.gateway.answer import Delta
from jetway.runtime.gateway.kserve.signature import Inputs, InputSpec, TensorSpec
from jetway.runtime.gateway.kserve.tensor import Tensor

from . import chain
from .base import Asked

_ABSENT = (
    InputSpec("bad_words", "BYTES", (-1,), neutral=(b"",)),
    InputSpec("embedding_bias_words", "BYTES", (-1,), neutral=(b"",)),
    InputSpec("embedding_bias_weights", "FP32", (-1,), neutral=(0.0,)),
    InputSpec("decoder_text_input", "BYTES", neutral=(b"",)),
    InputSpec("prompt_table_extra_id", "UINT64", (-1,), neutral=()),
    InputSpec("num_draft_tokens", "INT32", neutral=(0,)),
    InputSpec("use_draft_logits", "BOOL", neutral=(False,)),
)


class TextDialect:
    inputs = (
        InputSpec("text_input", "BYTES", required=True),
        InputSpec("max_tokens", "INT32", required=True),
        InputSpec("stream", "BOOL"),
        InputSpec("top_k", "INT32"),
        InputSpec("top_p", "FP32"),
        InputSpec("stop_words", "BYTES", (-1,)),
        InputSpec("length_penalty", "FP32"),  # of beams only
        *chain.INPUTS,
        *_ABSENT,
    )
    outputs = (TensorSpec("text_output", "BYTES", (-1,)), *chain.OUTPUTS)
    fields = chain.FIELDS | {"stop": ("stop_words",)}
    batched = True
    acknowledges_stop = True

    def parse(self, inputs: Inputs) -> Asked:
        [prompt] = inputs.texts("text_input")
        return Asked(
            prompt=prompt,
            sampling=chain.sampling(inputs, "top_k", "top_p"),
            seed=chain.seed(inputs),
            n=inputs.integer("num_return_sequences") or 1,
            max_tokens=inputs.integer("max_tokens") or 0,
            stop=tuple(word for word in inputs.texts("stop_words") if word),
            stream=inputs.flag("stream"),
            shows=chain.shows(inputs),
        )

    def writer(self, asked: Asked, num_prompt_tokens: int) -> "TextWriter":
        return TextWriter(asked, num_prompt_tokens)


class TextWriter:
    def __init__(self, asked: Asked, num_prompt_tokens: int) -> None:
        self._chain = chain.ChainWriter(asked, num_prompt_tokens)
        self._prefix = str(asked.prompt) if self._chain.shows_prompt else ""

    def says(self, delta: Delta) -> bool:
        return bool(delta.piece.text)

    def outputs(self, delta: Delta) -> list[Tensor]:
        """Clients index the text once: its shape has no batch dimension."""
        text = self._prefix + delta.piece.text
        return [Tensor("text_output", "BYTES", (1,), [text.encode()]), *self._chain.beside(delta)]
