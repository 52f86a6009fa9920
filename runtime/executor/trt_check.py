"""Whether a TensorRT engine can be served here, known before it is loaded.

What nobody could drive by steps, the manifest's reader refuses: a cache that is not paged, or not for prompts in chunks,
padded input, managed or streamed weights, missing ranks, sizes that exclude each other. Here is what depends on the
place and on this executor.
"""

from dataclasses import dataclass
from pathlib import Path

from jetway.builder.manifest import CONFIG_FILE, Manifest, ManifestError, TensorRtBuild, read
from jetway.runtime.errors import ConfigError

REBUILD = "Build it again, for what is here"


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What an engine is to be served on, and with."""

    tensorrt_llm_version: str  # installed
    tensorrt_version: str  # installed
    compute_capability: str  # of every GPU, for example "9.0"
    num_ranks: int  # processes that will run it, one GPU each


def read_engine(directory: Path, here: Surroundings) -> Manifest:
    """The manifest of a TensorRT engine that can be served here.

    Raises ConfigError, which names the file, the field, its value and the remedy.
    """
    try:
        manifest = read(directory)
        file = directory / CONFIG_FILE
        if manifest.tensorrt is None:
            raise ManifestError(file, f"jetway.engine is {manifest.engine!r}, not 'tensorrt'")
        _check_place(file, manifest.tensorrt, here)
    except ManifestError as error:
        raise ConfigError(str(error)) from error
    return manifest


def _check_place(file: Path, build: TensorRtBuild, here: Surroundings) -> None:
    """An engine belongs to the versions and to the kind of GPU that it was built with, and to as many of these as ranks."""
    for field, built, found in (
        ("version", build.tensorrt_llm_version, here.tensorrt_llm_version),
        ("jetway.built_with.tensorrt", build.tensorrt_version, here.tensorrt_version),
        ("jetway.compute_capability", build.compute_capability, here.compute_capability),
    ):
        if built != found:
            raise ManifestError(file, f"{field} is {built!r}, but here is {found!r}", REBUILD)
    if build.num_ranks != here.num_ranks:
        split = f"tp_size {build.tp_size} and pp_size {build.pp_size}"
        problem = f"pretrained_config.mapping means {build.num_ranks} ranks ({split}), and {here.num_ranks} run it"
        raise ManifestError(file, problem, "`jetway serve` starts them all, by executor.mpirun")
