"""What makes two engines the same, and two finished stages."""

import hashlib
from collections.abc import Iterable, Mapping
from importlib.metadata import version

from .checkpoint import CONFIG_FILE
from .spec import BuildSpec

PACKAGES = {
    "openvino": ("jetway-llm", "openvino", "torch", "transformers"),
    "tensorrt": ("jetway-llm", "torch", "transformers"),
}


def engine_id(spec: BuildSpec, digests: Mapping[str, str], built_on: Iterable[str] = ()) -> str:
    """Hex SHA-256 over all of a checkpoint's files and the options that change tokens.

    `built_on` names what else does: of a TensorRT engine, the libraries' versions and the GPU.
    """
    quantization = [] if spec.quantization is None else [spec.quantization]
    options = [spec.engine, spec.dtype, spec.kv_cache_dtype, *quantization, *built_on]
    if spec.engine == "tensorrt":
        plugins = [spec.tensorrt.gemm_plugin, str(spec.tensorrt.multiple_profiles)]
        options += [str(spec.tokens_per_block), *plugins, *_split(spec)]
    return _digest(options, digests)


def conversion_id(spec: BuildSpec, digests: Mapping[str, str]) -> str:
    """The same for a converted model: of weights and configuration only, but also of the packages that convert."""
    converted = {
        name: digest
        for name, digest in digests.items()
        if name == CONFIG_FILE or name.endswith((".safetensors", ".gguf"))
    }
    packages = [f"{name} {found}" for name, found in package_versions(spec).items()]
    split = [spec.kv_cache_dtype, *_split(spec)] if spec.engine == "tensorrt" else []
    return _digest([spec.engine, spec.dtype, str(spec.quantization), *split, *packages], converted)


def package_versions(spec: BuildSpec) -> dict[str, str]:
    """Of what builds this engine."""
    names = PACKAGES[spec.engine]
    if spec.engine == "openvino" and spec.quantization is not None:
        names = (*names, "nncf")
    return {name: version(name) for name in names}


def package_version() -> str:
    """Of this package."""
    return version("jetway-llm")


def _split(spec: BuildSpec) -> list[str]:
    """How a TensorRT checkpoint is split among ranks, and by what its scales are measured."""
    options = spec.tensorrt
    return [str(options.tp_size), str(options.pp_size), str(options.calib_dataset)]


def _digest(options: Iterable[str], digests: Mapping[str, str]) -> str:
    digest = hashlib.sha256("\0".join(options).encode())
    for name, content in digests.items():
        digest.update(f"\0{name}\0{content}".encode())
    return digest.hexdigest()
