"""A stand-in for the module `tensorrt`: engines that compute a small Llama by the reference interpreter, on StandInDevice.

Of an engine of several ranks each file holds a part, for a device of its own.

It has the calls that Jetway makes and no others, refuses what TensorRT or the plugin would refuse or read wrongly, and
tells the race detector which blocks of the KV pool each step reads and writes.
"""

import ctypes
from collections.abc import Sequence
from enum import Enum
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.support.cuda_races import RaceFound, Unit
from tests.support.cuda_stand_in import ALIGNMENT, Place, StandInDevice
from tests.support.trt_contract import ContractViolation, Tensors
from tests.support.trt_interpreter import Interpreter, Port, Sizes
from tests.support.trt_llama import Llama

PLAN = b"the plan of a small Llama"  # what an engine's file holds, and the rank as one more byte
SCRATCH_BYTES = 4096


class DataType(Enum):
    FLOAT = "float32"
    INT32 = "int32"
    INT64 = "int64"


class TensorIOMode(Enum):
    INPUT = 1
    OUTPUT = 2


class StandInTensorRt(SimpleNamespace):
    """Put it into sys.modules as `tensorrt`."""

    def __init__(
        self, parts: Sequence[tuple[Llama, StandInDevice]], sizes: Sizes, profiles: Sequence[int] = ()
    ) -> None:
        """`parts` by rank. `profiles`: the most tokens that each takes; one that takes all, unless given."""

        class Logger:
            WARNING = 2

            def __init__(self, severity: int) -> None:
                self.severity = severity

        class Runtime:
            def __init__(self, logger: Logger) -> None:
                self.logger = logger

            def deserialize_cuda_engine(self, plan: bytes) -> Engine | None:
                if plan[:-1] != PLAN:
                    return None
                return Engine(*parts[plan[-1]], sizes, profiles or [sizes.max_num_tokens])

        super().__init__(Logger=Logger, Runtime=Runtime, TensorIOMode=TensorIOMode)


class Engine:
    device_memory_size_v2 = SCRATCH_BYTES

    def __init__(self, model: Llama, device: StandInDevice, sizes: Sizes, profiles: Sequence[int]) -> None:
        self.model, self.sizes, self.device, self.profiles = model, sizes, device, profiles
        interpreter = Interpreter(model, sizes)
        self.ports: dict[str, Port] = {port.name: port for port in interpreter.ports}
        self.device_inputs, self.host_inputs = [*interpreter.profile.device_inputs], [*interpreter.profile.host_inputs]
        self.tokens_input = self.device_inputs[0]
        self._interpreters: dict[int, Interpreter] = {}
        self.num_io_tensors = len(self.ports)
        self.num_optimization_profiles = len(profiles)

    def get_tensor_name(self, index: int) -> str:
        return [*self.ports][index]

    def get_tensor_dtype(self, name: str) -> DataType:
        return DataType(self.ports[name].dtype)

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return self.ports[name].shape

    def get_tensor_mode(self, name: str) -> TensorIOMode:
        return TensorIOMode.INPUT if self.ports[name].is_input else TensorIOMode.OUTPUT

    def get_tensor_profile_shape(self, name: str, index: int) -> tuple[tuple[int, ...], ...]:
        assert name == self.tokens_input
        width = self.ports[name].shape[1:]
        return (1, *width), (self.profiles[index], *width), (self.profiles[index], *width)

    def create_execution_context_without_device_memory(self) -> "Context":
        return Context(self)

    def interpreter(self, pool: Place) -> Interpreter:
        """Of the pool at that place, which is the whole of an allocation."""
        address = pool.live_address()
        if address not in self._interpreters:
            memory = np.ctypeslib.as_array((ctypes.c_uint8 * pool.memory.num_bytes).from_address(address))
            self._interpreters[address] = Interpreter(self.model, self.sizes, pool=memory)
        return self._interpreters[address]


class Context:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._scratch = (0, 0)
        self._profile: int | None = None
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._addresses: dict[str, int] = {}
        self._host: dict[str, NDArray[Any]] = {}  # as it was when its address was given

    def set_device_memory(self, address: int, size: int) -> None:
        assert size >= SCRATCH_BYTES and address % ALIGNMENT == 0
        self._scratch = (address, size)

    def set_optimization_profile_async(self, index: int, stream: int) -> bool:
        self._profile = index
        return True

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        declared = self._engine.ports[name].shape
        self._shapes[name] = shape
        return len(shape) == len(declared) and all(at in (-1, size) for at, size in zip(declared, shape, strict=True))

    def set_tensor_address(self, name: str, address: int) -> bool:
        self._addresses[name] = address
        if name in self._engine.host_inputs:
            self._host[name] = self._read(name).copy()
        return name in self._engine.host_inputs or address % ALIGNMENT == 0

    def execute_async_v3(self, handle: int) -> bool:
        """Host inputs are read now, as the plugin does while the step is enqueued; the others when it runs."""
        engine, device = self._engine, self._engine.device
        device.place_of(self._scratch[0]).live_address()
        host = {name: self._read(name).copy() for name in engine.host_inputs}
        if any((host[name] != self._host[name]).any() for name in engine.host_inputs):
            raise RaceFound("a host input has changed, or was freed, before the step was enqueued")
        assert device.is_the_threads, "the step is asked for on another GPU"
        assert self._profile is not None
        num_tokens = self._shapes[engine.tokens_input][0]
        assert num_tokens <= engine.profiles[self._profile], "more tokens than the profile takes"
        stream = device.stream_of(handle)
        output = engine.model.output
        places = {name: device.place_of(self._addresses[name]) for name in [*engine.device_inputs, output]}
        shapes = {name: self._shapes[name] for name in engine.device_inputs}
        num_rows = len(host["host_request_types"]) if output == "logits" else num_tokens
        shapes[output] = (num_rows, engine.model.output_width)
        pool = device.place_of(int(host["host_kv_cache_pool_pointers"][0, 0]))
        device.note(
            stream, "execute", self._profile, *((name, str(places[name]), shape) for name, shape in shapes.items())
        )

        def work() -> None:
            inputs = {
                name: _array(places[name], shapes[name], engine.ports[name].dtype) for name in engine.device_inputs
            }
            _array(places[output], shapes[output], "float32")[:] = engine.interpreter(pool).run(inputs, host)

        reads, writes = self._blocks(host, pool)
        units = {name: device.units(places[name], 4 * prod(shape)) for name, shape in shapes.items()}
        reads += [unit for name in engine.device_inputs for unit in units[name]]
        stream.ask("a step", work, reads=reads, writes=writes + units[output])
        return True

    def _blocks(self, host: Tensors, pool: Place) -> tuple[list[Unit], list[Unit]]:
        """The blocks whose KV the step reads, and those that it writes."""
        size, stride = self._engine.sizes.tokens_per_block, 2 * self._engine.model.num_layers
        is_context = host["host_request_types"] == 0
        ends = host["host_past_key_value_lengths"] + ~is_context
        begins = ends - np.where(is_context, host["host_context_lengths"], 1)
        reads, writes = list[Unit](), list[Unit]()
        for row, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
            if not 0 <= begin < end <= self._engine.sizes.max_seq_len:
                raise ContractViolation("the lengths of a row")
            blocks = host["host_kv_cache_block_offsets"][0, row, 0, : -(-end // size)] // stride
            units = [Unit(pool.memory.name, index) for index in blocks.tolist()]
            reads += units
            writes += units[begin // size :]
        return reads, writes

    def _read(self, name: str) -> NDArray[Any]:
        """What stands at the address of a host input."""
        dtype = np.dtype(self._engine.ports[name].dtype)
        size = prod(self._shapes[name]) * dtype.itemsize
        return np.frombuffer(ctypes.string_at(self._addresses[name], size), dtype).reshape(self._shapes[name])


def _array(place: Place, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """The memory at a place, shared."""
    size = prod(shape) * np.dtype(dtype).itemsize
    memory = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(place.live_address()))
    return memory.view(dtype).reshape(shape)
