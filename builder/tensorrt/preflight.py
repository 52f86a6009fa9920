"""Whether this machine can build an engine, found out in a second; each failure with its remedy."""

from collections.abc import Iterator

from jetway.builder import disk
from jetway.builder.errors import MachineError

from .build_config import WEIGHT_ONLY
from .exclusions import is_calibrated
from .machine import TENSORRT_LLM_VERSION, Gpu, Machine
from .plan import TensorRtPlan

TENSORRT_VERSION = "10.14"  # what TensorRT-LLM 1.2.1 is built for
DRIVER_VERSION = 580  # the first that runs CUDA 13
CAPABILITY = (8, 0)
FP8_CAPABILITY = (8, 9)
WEIGHT_ONLY_GAP = ((10, 0), (12, 0))  # from, to below: TensorRT-LLM refuses INT8 and INT4 weights and INT8 caches there
HOST_COPIES = 2  # of a rank's weights in main memory while it is built: the loaded ones and the engine's
INSTALL = "Install it on Python 3.12: pip install 'jetway-llm[tensorrt]'"


def check(planned: TensorRtPlan, machine: Machine) -> None:
    """Raise MachineError with everything that stands in the way."""
    found = [*_packages(machine), *_gpus(planned, machine), *_room(planned, machine)]
    if problems := dict.fromkeys(found):  # of GPUs that are alike, once
        lines = [*problems, "To see the build without it: --dry-run. To convert only: --convert-only."]
        raise MachineError("this machine cannot build a TensorRT engine:\n" + "\n".join(f"  {line}" for line in lines))


def check_conversion(planned: TensorRtPlan, machine: Machine) -> None:
    """Raise MachineError where TensorRT-LLM has to convert a model, or to measure scales, and cannot."""
    for problem in _packages(machine):
        raise MachineError(f"TensorRT-LLM itself converts such a model, and {problem}")
    if is_calibrated(planned.spec) and not machine.gpus:
        raise MachineError("scales are measured on a GPU, and nvidia-smi shows none. Convert where one is.")


def gpus_used(planned: TensorRtPlan, machine: Machine) -> tuple[Gpu, ...]:
    """Those that ranks are built on, one at a time on each."""
    return machine.gpus[: min(planned.spec.tensorrt.workers or len(machine.gpus), len(planned.ranks))]


def _packages(machine: Machine) -> Iterator[str]:
    wanted = {"tensorrt_llm": TENSORRT_LLM_VERSION, "tensorrt": TENSORRT_VERSION}
    for name, version in wanted.items():
        found = machine.versions.get(name)
        if found is None:
            yield f"{name} is not installed. {INSTALL}."
        elif found != version and not found.startswith(f"{version}."):
            yield f"{name} {found} is installed, and engines are built with {version}. {INSTALL}."


def _gpus(planned: TensorRtPlan, machine: Machine) -> Iterator[str]:
    if not machine.gpus:
        why = f" ({'; '.join(machine.complaints)})" if machine.complaints else ""
        yield f"nvidia-smi shows no GPU{why}. Install NVIDIA's driver, or build on a machine that has one."
        return
    if len({gpu.compute_capability for gpu in machine.gpus}) > 1:
        names = ", ".join(gpu.name for gpu in machine.gpus)
        yield f"its GPUs differ ({names}), and an engine runs on one kind. Choose by CUDA_VISIBLE_DEVICES."
    for gpu in gpus_used(planned, machine):  # the others may be busy
        yield from _gpu(planned, gpu)


def _gpu(planned: TensorRtPlan, gpu: Gpu) -> Iterator[str]:
    spec, capability = planned.spec, gpu.compute_capability
    kind = f"{gpu.name} has compute capability {capability[0]}.{capability[1]}"
    if int(gpu.driver_version.partition(".")[0]) < DRIVER_VERSION:
        yield f"{gpu.name} has driver {gpu.driver_version}, and CUDA 13 needs {DRIVER_VERSION}. Update the driver."
    if capability < CAPABILITY:
        yield f"{kind}, and TensorRT-LLM needs {CAPABILITY[0]}.{CAPABILITY[1]}. Use a newer GPU."
    if "fp8" in (spec.quantization, spec.kv_cache_dtype) and capability < FP8_CAPABILITY:
        yield f"{kind}, and fp8 needs {FP8_CAPABILITY[0]}.{FP8_CAPABILITY[1]}. Leave fp8 out, or use a newer GPU."
    low, high = WEIGHT_ONLY_GAP
    if (spec.quantization in WEIGHT_ONLY or spec.kv_cache_dtype == "int8") and low <= capability < high:
        yield f"{kind}, for which TensorRT-LLM has no int8 and int4 weights and no int8 cache. Use fp8 or neither."
    if gpu.free_bytes < planned.rank_bytes:
        needed, free = planned.rank_bytes / 1e9, gpu.free_bytes / 1e9
        yield f"a rank's weights take {needed:.1f} GB, and {gpu.name} has {free:.1f} GB free. Raise --tp-size."


def _room(planned: TensorRtPlan, machine: Machine) -> Iterator[str]:
    if workers := len(gpus_used(planned, machine)):
        needed, free = HOST_COPIES * planned.rank_bytes * workers, machine.available_bytes
        if free < needed:
            sizes = f"{needed / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are available"
            yield f"{workers} ranks at a time take {sizes}. Lower --workers, or use a larger machine."
    output = planned.spec.output_dir
    needed, free = planned.checkpoint_bytes + planned.engine_bytes, disk.free_bytes(output)
    if free < needed:
        sizes = f"{needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free at {output}"
        yield f"the converted checkpoint and the engine take {sizes}. Make room, or choose another --output-dir."
