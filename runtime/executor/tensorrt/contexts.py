"""A TensorRT engine in memory, and a step's call of it (contracts/tensorrt-llm.md sections 3.1 and 3.6)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jetway.runtime.errors import ConfigError, EngineFailed
from jetway.runtime.executor.trt_tensors import HIDDEN_STATES_INPUT, TOKENS, EnginePort, Tensor

from .device import Device

if TYPE_CHECKING:
    import torch

# TensorRT's types, as torch calls them; one that no port has keeps its name, and is refused.
DTYPES = {"FLOAT": "float32", "HALF": "float16", "BF16": "bfloat16", "INT32": "int32", "INT64": "int64"}


@dataclass(frozen=True, slots=True)
class Profile:
    """An optimization profile's context, and the most tokens that it takes."""

    max_num_tokens: int
    context: Any  # tensorrt.IExecutionContext


class EngineContexts:
    """A deserialized engine with a context for each of its optimization profiles.

    They share one scratch memory, so all steps are work of one stream, `compute`.
    """

    def __init__(self, file: Path, device: Device) -> None:
        """Raises ConfigError for what is no engine, or none of this TensorRT and this GPU."""
        import tensorrt

        self._device = device
        self._runtime = tensorrt.Runtime(tensorrt.Logger(tensorrt.Logger.WARNING))
        self._engine = self._runtime.deserialize_cuda_engine(file.read_bytes())
        if self._engine is None:
            raise ConfigError(f"TensorRT cannot load {file}; what it says of that stands above")
        self.ports = [_port(tensorrt, self._engine, i) for i in range(self._engine.num_io_tensors)]
        self._tokens_input = TOKENS if any(port.name == TOKENS for port in self.ports) else HIDDEN_STATES_INPUT
        self.compute = device.stream()
        self._scratch = device.zeros(self._engine.device_memory_size_v2)
        self._profiles = [self._profile(i) for i in range(self._engine.num_optimization_profiles)]
        self.compute.synchronize()

    @property
    def output(self) -> EnginePort:
        """The first, and the only one of an engine that `input_names` takes."""
        return next(port for port in self.ports if not port.is_input)

    def _profile(self, index: int) -> Profile:
        context = self._engine.create_execution_context_without_device_memory()
        if context is None:
            raise ConfigError("TensorRT cannot make an execution context; what it says of that stands above")
        context.set_device_memory(self._scratch.data_ptr(), self._engine.device_memory_size_v2)
        _check(context.set_optimization_profile_async(index, self.compute.handle), f"profile {index} was not taken")
        most = self._engine.get_tensor_profile_shape(self._tokens_input, index)[-1]
        return Profile(most[0], context)

    def run(self, device: "Mapping[str, torch.Tensor]", host: Mapping[str, Tensor], output: "torch.Tensor") -> None:
        """Ask `compute` for the step of these inputs. `host` is read before this returns, `device` as the step runs.

        Raises EngineFailed when TensorRT does not take it.
        """
        num_tokens = len(device[self._tokens_input])
        context = next(profile.context for profile in self._profiles if num_tokens <= profile.max_num_tokens)
        for name, tensor in device.items():
            _bind(context, name, tensor.shape, tensor.data_ptr())
        for name, array in host.items():
            _bind(context, name, array.shape, array.ctypes.data)
        self._device.use()  # torch's own work goes where its streams and tensors are
        name = self.output.name
        _check(context.set_tensor_address(name, output.data_ptr()), f"the address of {name} was not taken")
        _check(context.execute_async_v3(self.compute.handle), "the step was not taken")


def _port(tensorrt: Any, engine: Any, index: int) -> EnginePort:
    name = engine.get_tensor_name(index)
    dtype = engine.get_tensor_dtype(name).name
    return EnginePort(
        name=name,
        dtype=DTYPES.get(dtype, dtype.lower()),
        shape=tuple(engine.get_tensor_shape(name)),
        is_input=engine.get_tensor_mode(name) == tensorrt.TensorIOMode.INPUT,
    )


def _bind(context: Any, name: str, shape: Sequence[int], address: int) -> None:
    _check(context.set_input_shape(name, tuple(shape)), f"the shape {list(shape)} of {name} was not taken")
    _check(context.set_tensor_address(name, address), f"the address of {name} was not taken")


def _check(taken: bool, problem: str) -> None:
    if not taken:
        raise EngineFailed(f"TensorRT: {problem}; its own words stand in the log above")
