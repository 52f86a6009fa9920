"""All checks in order."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from jetway.builder.manifest import TensorRtBuild
from jetway.runtime.config import ExecutorConfig, ServeConfig
from jetway.runtime.errors import ConfigError
from jetway.runtime.executor.base import Engine
from jetway.runtime.preflight import read_manifest
from jetway.runtime.serve import load_engine

from . import engine as on_engine
from .environment import gpu, machine, mpi, plugins, room_for, versions
from .findings import Finding, Outcome, attempt, failed
from .sampler import compare_samplers

SETTINGS = ExecutorConfig(kv_cache_memory=256 << 20, host_cache_memory=256 << 20)  # enough for every check

CHECKS: dict[str, Callable[[], Iterable[str]]] = {
    "versions": versions,
    "machine": machine,
    "GPU": gpu,
    "TensorRT-LLM": plugins,
    "MPI": mpi,
    "sampler": compare_samplers,
}
ENGINE_CHECKS: dict[str, Callable[[Engine], Iterable[str]]] = {
    "engine": on_engine.describe,
    "tokens, alone and together": on_engine.tokens_alone_and_together,
    "swap, out and back": on_engine.swap_round_trip,
    "copy rates": on_engine.copy_rates,
    "step times": on_engine.step_times,
}


def examine(directory: Path | None) -> Iterator[Finding]:
    """The machine, and the engine in `directory` if one is given; each finding as it is made."""
    for what, check in CHECKS.items():
        yield attempt(what, check)
    if directory is None:
        yield Finding("engine", Outcome.SKIPPED, ("none was given: `jetway doctor ENGINE` runs one",))
        return
    try:
        build = read_manifest(directory).tensorrt
    except ConfigError as error:
        yield failed("engine", error)
        return
    yield from _of_one_rank(directory) if build is None or build.num_ranks == 1 else _of_several(build)


def _of_one_rank(directory: Path) -> Iterator[Finding]:
    try:
        engine = load_engine(ServeConfig(engine=directory, executor=SETTINGS))
    except Exception as error:  # noqa: BLE001  whatever library it comes from
        yield failed("engine", error)
        return
    for what, check in ENGINE_CHECKS.items():
        yield attempt(what, partial(check, engine))


def _of_several(build: TensorRtBuild) -> Iterator[Finding]:
    """The doctor is one process, and loads none of them."""
    yield attempt("GPUs for all ranks", partial(room_for, build.num_ranks))
    ranks = f"it has {build.num_ranks} ranks (tp_size {build.tp_size}, pp_size {build.pp_size})"
    reason = f"{ranks}, and the doctor is one process; `jetway serve` starts all"
    yield Finding("engine", Outcome.SKIPPED, (reason,))
