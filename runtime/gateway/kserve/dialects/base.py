"""What a dialect is: a signature, a reader of inputs and a writer of outputs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from jetway.runtime.gateway.answer import Delta
from jetway.runtime.gateway.call import Prompt
from jetway.runtime.gateway.kserve.fields import Fields
from jetway.runtime.gateway.kserve.signature import Inputs, InputSpec, TensorSpec
from jetway.runtime.gateway.kserve.tensor import Tensor
from jetway.scheduler.request import SamplingParams

STOP_INPUT = "stop"  # where a signature has it: true asks for the end of the request with the same id


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request in words of a call. `shows` names what the outputs hold beside the answer itself."""

    prompt: Prompt
    sampling: SamplingParams
    seed: int | None
    max_tokens: int
    n: int = 1
    stop: tuple[str, ...] = ()
    stream: bool = False
    shows: frozenset[str] = frozenset()


class Writer(Protocol):
    """Writes one answer's deltas, whose pieces may be as long as the whole."""

    def says(self, delta: Delta) -> bool:
        """Whether it has anything for a client that reads a stream; else it can go with the next."""

    def outputs(self, delta: Delta) -> list[Tensor]: ...


class Dialect(Protocol):
    """`batched`: shapes have a batch dimension. `acknowledges_stop`: a stop is answered by success, not by an error.
    `fields`: those of a call whose tensors have other names.
    """

    @property
    def inputs(self) -> Sequence[InputSpec]: ...

    @property
    def outputs(self) -> Sequence[TensorSpec]: ...

    @property
    def fields(self) -> Fields: ...

    @property
    def batched(self) -> bool: ...

    @property
    def acknowledges_stop(self) -> bool: ...

    def parse(self, inputs: Inputs) -> Asked:
        """Raises InvalidArgument."""

    def writer(self, asked: Asked, num_prompt_tokens: int) -> Writer: ...
