"""What the engine needs of a GPU: memory, and streams of work that events put in order. `cuda.py` has the real one.

What is asked of a stream is done later, in the order it was asked for; streams are in no order with each other but by
events. Memory that work refers to must live, and stay as it is meant, until that work is done.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol, Self

from jetway.runtime.errors import EngineFailed

if TYPE_CHECKING:
    from torch import Tensor


class Event(Protocol):
    """A place in a stream's work."""

    def seconds_until(self, later: Self) -> float:
        """Time between two places, once the work before both is done."""
        ...

    def synchronize(self) -> None:
        """Return once the work before it is done. Raises RuntimeError where some of that failed."""
        ...


class Stream(Protocol):
    """A queue of work."""

    @property
    def handle(self) -> int:
        """Its cudaStream_t."""
        ...

    def copy(self, target: "Tensor", source: "Tensor") -> None:
        """Copy between the device and pinned memory, of tensors alike in shape and type."""
        ...

    def record(self) -> Event:
        """This place in the work."""
        ...

    def wait(self, event: Event) -> None:
        """What is asked for from here on waits for the event; the caller does not."""
        ...

    def current(self) -> AbstractContextManager[object]:
        """What torch does on the device within, is this stream's work."""
        ...

    def synchronize(self) -> None:
        """Return once all of its work is done. Raises RuntimeError where some of it failed."""
        ...


class Device(Protocol):
    """One GPU."""

    @property
    def compute_capability(self) -> str:
        """As NVIDIA writes it, for example "9.0"."""
        ...

    @property
    def free_bytes(self) -> int: ...

    @property
    def num_devices(self) -> int:
        """GPUs that this process sees, this one among them."""
        ...

    def use(self) -> None:
        """Make it the calling thread's: in a process that sees several, a new thread has the first."""
        ...

    def zeros(self, num_bytes: int) -> "Tensor":
        """Bytes on the device, aligned to 256, zero when this returns. Raises ConfigError where they are not free."""
        ...

    def pinned_zeros(self, num_bytes: int) -> "Tensor":
        """Bytes of page-locked main memory. Raises ConfigError where they are not there."""
        ...

    def stream(self) -> Stream: ...


@contextmanager
def device_errors(what: str) -> Iterator[None]:
    """Translate torch's errors to EngineFailed; CUDA's own reach us as these."""
    try:
        yield
    except RuntimeError as error:
        raise EngineFailed(f"{what} failed on the GPU: {error}") from error
