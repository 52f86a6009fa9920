"""A GPU's memory and streams on the CPU: work is kept, and done as late as its order allows.

So what does not wait for a copy computes with what was there before, and the race detector names it. Memory is torch's,
on the CPU; work refers to it by address, so memory that is freed too early is seen.
"""

import ctypes
import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from jetway.runtime.executor.tensorrt.device import Event
from tests.support.cuda_races import RaceFound, Races, Thread, Unit

ALIGNMENT = 256
LAST_CALLS = 400  # that are remembered


class Call(NamedTuple):
    """One call of the device or of TensorRT; a device's `calls` are in the order they came."""

    where: str
    what: str
    details: tuple[object, ...] = ()


class Memory(NamedTuple):
    """One allocation; its name says the place, and the number among all."""

    name: str
    address: int
    num_bytes: int
    array: "weakref.ref[NDArray[Any]]"  # dead once nobody holds it


class Place(NamedTuple):
    """An address within an allocation."""

    memory: Memory
    offset: int

    def __str__(self) -> str:
        return f"{self.memory.name}+{self.offset}"

    def live_address(self) -> int:
        if self.memory.array() is None:
            raise RaceFound(f"{self.memory.name} is used, and was freed")
        return self.memory.address + self.offset


class StandInEvent:
    """A place in a stream's work, and what the stream knew to be done there."""

    def __init__(self, stream: "StandInStream", place: int) -> None:
        self.stream = stream
        self.place = place  # so many pieces of work come before
        self.known = dict(stream.thread.known)

    def seconds_until(self, later: Event) -> float:
        assert isinstance(later, StandInEvent)
        for event in (self, later):
            assert event.stream.num_done >= event.place, "the time of an event that has not come"
        return 0.0

    def synchronize(self) -> None:
        with self.stream.device.turn:
            self.stream.device.note(self.stream, "synchronize", self.place)
            self.stream.run(self.place)
            self.stream.device.host.learn(self.known)


class StandInStream:
    def __init__(self, device: "StandInDevice", handle: int) -> None:
        self.handle = handle
        self.thread = Thread(f"stream {handle}")
        self.num_done = 0
        self.device = device
        self._kept: deque[Callable[[], None]] = deque()
        self._failure: Exception | None = None

    @property
    def num_asked(self) -> int:
        return self.num_done + len(self._kept)

    def ask(self, what: str, work: Callable[[], None], *, reads: list[Unit], writes: list[Unit]) -> None:
        """Keep work, to be done after all that was asked before, and after all that the host knows to be done."""
        with self.device.turn:
            self.thread.learn(self.device.host.known)
            self.device.races.access(self.thread, what, reads, writes)
            self._kept.append(work)
        if self.device.worker is not None:
            self.device.worker.submit(self.run, self.num_asked)

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        assert target.shape == source.shape and target.dtype == source.dtype
        assert target.is_contiguous() and source.is_contiguous()
        device, num_bytes = self.device, source.nbytes
        came_from, goes_to = device.place_of(source.data_ptr()), device.place_of(target.data_ptr())
        reads, writes = device.units(came_from, num_bytes), device.units(goes_to, num_bytes)
        device.note(self, "copy", str(came_from), str(goes_to), num_bytes)
        device.note_written_by_host(came_from, reads)

        def work() -> None:
            ctypes.memmove(goes_to.live_address(), came_from.live_address(), num_bytes)

        self.ask(f"the copy of {came_from} to {goes_to}", work, reads=reads, writes=writes)
        device.written_by_streams.update(writes)

    def record(self) -> StandInEvent:
        with self.device.turn:
            self.device.note(self, "record", self.num_asked)
            self.thread.learn(self.device.host.known)
            return StandInEvent(self, self.num_asked)

    def wait(self, event: Event) -> None:
        assert isinstance(event, StandInEvent)
        with self.device.turn:
            self.device.note(self, "wait", event.stream.thread.name, event.place)
            self.thread.learn(event.known)
            self._kept.append(lambda: event.stream.run(event.place))

    @contextmanager
    def current(self) -> Iterator[None]:
        """Torch's work on the CPU is done at once, so what comes before it in this stream is done now."""
        with self.device.turn:
            self.device.note(self, "torch")
            self.run(self.num_asked)
            yield

    def synchronize(self) -> None:
        with self.device.turn:
            self.device.note(self, "synchronize")
            self.run(self.num_asked)
            self.device.host.learn(self.thread.known)

    def run(self, place: int) -> None:
        """Do all work before that place. Raises what some of it raised, also when that was long ago."""
        with self.device.turn:
            while self.num_done < place:
                if self._failure is not None:
                    raise self._failure
                try:
                    self._kept.popleft()()
                except Exception as failure:
                    self._failure = failure
                    raise
                self.num_done += 1


class StandInDevice:
    """A Device. Accesses are told apart by `unit_bytes`, which is a block of the KV pool.

    With a `worker`, work does not wait until it must be done: another device may need what comes of it.
    """

    compute_capability = "9.0"
    num_devices = 4

    def __init__(self, unit_bytes: int, free_bytes: int = 1 << 20, worker: ThreadPoolExecutor | None = None) -> None:
        self.worker = worker
        self.free_bytes = free_bytes
        self.turn = threading.RLock()  # the host's threads come one at a time, and are one to the race detector
        self.host = Thread("the host")
        self.races = Races()
        self.calls: deque[Call] = deque(maxlen=LAST_CALLS)
        self.written_by_streams: set[Unit] = set()
        self._unit_bytes = unit_bytes
        self._users = threading.local()
        self.use()
        self._memories: list[Memory] = []
        self._num_allocated = Counter[str]()
        self._streams: dict[int, StandInStream] = {}

    def use(self) -> None:
        self._users.has_it = True

    @property
    def is_the_threads(self) -> bool:
        return getattr(self._users, "has_it", False)

    def zeros(self, num_bytes: int) -> torch.Tensor:
        return self._allocate("device", num_bytes)

    def pinned_zeros(self, num_bytes: int) -> torch.Tensor:
        return self._allocate("host", num_bytes)

    def stream(self) -> StandInStream:
        stream = StandInStream(self, len(self._streams) + 1)
        self._streams[stream.handle] = stream
        return stream

    def stream_of(self, handle: int) -> StandInStream:
        return self._streams[handle]

    def note(self, stream: StandInStream, what: str, *details: object) -> None:
        """Remember a call. Raises RaceFound when work was still to use memory that has been freed meanwhile."""
        self.calls.append(Call(stream.thread.name, what, details))
        for memory in [memory for memory in self._memories if memory.array() is None]:
            self._memories.remove(memory)
            self.races.free(self.host, self.units(Place(memory, 0), memory.num_bytes))

    def note_written_by_host(self, place: Place, units: list[Unit]) -> None:
        """What no stream has ever written and is copied from the host, the host has just written."""
        if place.memory.name.startswith("host") and not self.written_by_streams.intersection(units):
            self.races.access(self.host, f"the host's writing of {place}", writes=units)

    def place_of(self, address: int) -> Place:
        for memory in self._memories:
            if memory.address <= address < memory.address + memory.num_bytes:
                return Place(memory, address - memory.address)
        raise RaceFound(f"there is no memory at {address:#x}")

    def units(self, place: Place, num_bytes: int) -> list[Unit]:
        first, end = place.offset // self._unit_bytes, -(-(place.offset + num_bytes) // self._unit_bytes)
        return [Unit(place.memory.name, index) for index in range(first, end)]

    def _allocate(self, where: str, num_bytes: int) -> torch.Tensor:
        room = np.zeros(num_bytes + ALIGNMENT, np.uint8)
        shift = -room.ctypes.data % ALIGNMENT
        array = room[shift : shift + num_bytes]
        self._num_allocated[where] += 1
        name = f"{where} memory {self._num_allocated[where]}"
        self._memories.append(Memory(name, array.ctypes.data, num_bytes, weakref.ref(array)))
        return torch.from_numpy(array)
