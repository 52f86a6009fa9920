"""What Triton's Python backend gives to a model, as far as Jetway's uses it."""

import json
import queue
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np

FINAL = 1
_DTYPES = {"TYPE_STRING": np.object_, "TYPE_INT32": np.int32, "TYPE_FP32": np.float32}


class Tensor:
    def __init__(self, name: str, array: Any) -> None:
        self._name = name
        self._array = array

    def name(self) -> str:
        return self._name

    def as_numpy(self) -> Any:
        return self._array


@dataclass(frozen=True)
class TritonError(Exception):
    INTERNAL, NOT_FOUND, INVALID_ARG, UNAVAILABLE, UNSUPPORTED, CANCELLED = range(1, 7)

    message: str
    code: int


class TritonModelException(Exception):
    pass


@dataclass(frozen=True)
class InferenceResponse:
    output_tensors: list[Tensor] = field(default_factory=list)
    error: TritonError | None = None


class Sender:
    """Keeps what is sent; `cancelled` is set by the test. `when_asked` is called before a question is answered."""

    def __init__(self) -> None:
        self.sent: queue.Queue[InferenceResponse | None] = queue.Queue()
        self.cancelled = False
        self.ended = False
        self.asked_after_end = False  # which ends a real Triton
        self.when_asked: Callable[[], object] = lambda: None

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        self.ended = flags == FINAL
        self.sent.put(response)

    def is_cancelled(self) -> bool:
        self.when_asked()
        self.asked_after_end |= self.ended
        return self.cancelled

    def next(self) -> InferenceResponse | None:
        """What is sent next; None: the end alone."""
        return self.sent.get(timeout=10)


class InferenceRequest:
    def __init__(
        self, inputs: Mapping[str, Any], request_id: str = "", parameters: Mapping[str, Any] = {}, timeout: int = 0
    ) -> None:
        self._inputs = [Tensor(name, array) for name, array in inputs.items()]
        self._request_id = request_id
        self._parameters = json.dumps(dict(parameters))
        self._timeout = timeout
        self.sender = Sender()

    def inputs(self) -> list[Tensor]:
        return self._inputs

    def request_id(self) -> str:
        return self._request_id

    def parameters(self) -> str:
        return self._parameters

    def timeout(self) -> int:
        return self._timeout

    def get_response_sender(self) -> Sender:
        return self.sender


def install() -> None:
    """Make it importable under Triton's name."""
    module: Any = ModuleType("triton_python_backend_utils")
    module.Tensor = Tensor
    module.TritonError = TritonError
    module.TritonModelException = TritonModelException
    module.InferenceResponse = InferenceResponse
    module.TRITONSERVER_RESPONSE_COMPLETE_FINAL = FINAL
    module.triton_string_to_numpy = _DTYPES.__getitem__
    sys.modules.setdefault(module.__name__, module)
