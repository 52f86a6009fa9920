"""A GPU by way of torch. Nothing of it has run on one."""

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from jetway.runtime.errors import ConfigError

from .device import Event

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class CudaEvent:
    """An Event."""

    def __init__(self, event: "torch.cuda.Event") -> None:
        self.event = event

    def seconds_until(self, later: Event) -> float:
        assert isinstance(later, CudaEvent)
        return float(self.event.elapsed_time(later.event)) / 1000.0

    def synchronize(self) -> None:
        self.event.synchronize()


class CudaStream:
    """A Stream."""

    def __init__(self) -> None:
        import torch

        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch's own lack of types, as below

    @property
    def handle(self) -> int:
        return int(self._stream.cuda_stream)

    def copy(self, target: "Tensor", source: "Tensor") -> None:
        with self.current():
            target.copy_(source, non_blocking=True)

    def record(self) -> CudaEvent:
        import torch

        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(self._stream)
        return CudaEvent(event)

    def wait(self, event: Event) -> None:
        assert isinstance(event, CudaEvent)
        self._stream.wait_event(event.event)

    def current(self) -> AbstractContextManager[object]:
        import torch

        return torch.cuda.stream(self._stream)

    def synchronize(self) -> None:
        self._stream.synchronize()


class CudaDevice:
    """A Device: of those that this process sees, that of a rank. Raises ConfigError where there is none."""

    def __init__(self, rank: int = 0) -> None:
        if torch_device() != "cuda":
            raise ConfigError("a TensorRT engine needs an NVIDIA GPU, and torch finds none")
        self._index = rank % self.num_devices
        self.use()

    def use(self) -> None:
        import torch

        torch.cuda.set_device(self._index)

    @property
    def num_devices(self) -> int:
        import torch

        return torch.cuda.device_count()

    @property
    def name(self) -> str:
        import torch

        return str(torch.cuda.get_device_name())

    @property
    def compute_capability(self) -> str:
        import torch

        major, minor = torch.cuda.get_device_capability()
        return f"{major}.{minor}"

    @property
    def free_bytes(self) -> int:
        import torch

        free, _ = torch.cuda.mem_get_info()
        return int(free)

    def zeros(self, num_bytes: int) -> "Tensor":
        import torch

        try:
            memory = torch.zeros(num_bytes, dtype=torch.uint8, device="cuda")
            torch.cuda.synchronize()
        except RuntimeError as error:
            raise ConfigError(f"{num_bytes} bytes are not free on the GPU: {error}") from error
        return memory

    def pinned_zeros(self, num_bytes: int) -> "Tensor":
        """Registered, not allocated, as page-locked: torch's own allocator rounds up to a power of two."""
        import torch

        try:
            memory = torch.zeros(num_bytes, dtype=torch.uint8)
            if num_bytes:
                runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
                torch.cuda.check_error(runtime.cudaHostRegister(memory.data_ptr(), num_bytes, 0))
        except RuntimeError as error:
            raise ConfigError(f"{num_bytes} bytes of main memory cannot be page-locked: {error}") from error
        return memory

    def stream(self) -> CudaStream:
        return CudaStream()


def torch_device() -> str:
    """Where torch can compute best: "cuda" or "cpu". Raises ConfigError without torch."""
    try:
        import torch
    except ImportError as error:
        raise ConfigError(f"torch cannot be imported here: {error}") from error
    return "cuda" if torch.cuda.is_available() else "cpu"
