"""What makes two engines the same, and two finished stages."""

import hashlib
from collections.abc import Iterable, Mapping
from importlib.metadata import version

from .checkpoint import CONFIG_FILE
from .spec import BuildSpec

PACKAGES = ("jetway-llm", "openvino", "torch", "transformers")


def engine_id(spec: BuildSpec, digests: Mapping[str, str]) -> str:
    """Hex SHA-256 over all of a checkpoint's files and the options that change tokens."""
    quantization = [] if spec.quantization is None else [spec.quantization]
    return _digest([spec.engine, spec.dtype, spec.kv_cache_dtype, *quantization], digests)


def conversion_id(spec: BuildSpec, digests: Mapping[str, str]) -> str:
    """The same for a converted model: of weights and configuration only, but also of the packages that convert."""
    converted = {
        name: digest
        for name, digest in digests.items()
        if name == CONFIG_FILE or name.endswith((".safetensors", ".gguf"))
    }
    packages = [f"{name} {found}" for name, found in package_versions(spec).items()]
    return _digest([spec.engine, spec.dtype, str(spec.quantization), *packages], converted)


def package_versions(spec: BuildSpec) -> dict[str, str]:
    """Of what builds this engine."""
    names = PACKAGES if spec.quantization is None else (*PACKAGES, "nncf")
    return {name: version(name) for name in names}


def _digest(options: Iterable[str], digests: Mapping[str, str]) -> str:
    digest = hashlib.sha256("\0".join(options).encode())
    for name, content in digests.items():
        digest.update(f"\0{name}\0{content}".encode())
    return digest.hexdigest()
