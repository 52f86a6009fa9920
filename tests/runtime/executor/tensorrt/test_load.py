"""What is done, in which order, before an engine serves, and what is refused; the library is a stand-in."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from jetway.builder.manifest import read
from jetway.runtime.config import ExecutorConfig, ServeConfig
from jetway.runtime.errors import ConfigError
from jetway.runtime.executor import tensorrt
from jetway.runtime.executor.tensorrt import load as loading
from jetway.runtime.executor.tensorrt.contexts import EngineContexts
from jetway.runtime.executor.tensorrt.load import check_devices, load, num_blocks
from jetway.runtime.executor.tensorrt.plugins import import_package
from jetway.runtime.executor.trt_kv import KvLayout
from jetway.runtime.executor.trt_rank import RankPart
from jetway.runtime.serve import load_engine
from tests.support.cuda_stand_in import StandInDevice
from tests.support.thread_ranks import Meeting
from tests.support.trt_interpreter import Sizes
from tests.support.trt_llama import Llama
from tests.support.trt_manifest import make_document, write_document
from tests.support.trt_served import make_device

SETTINGS = ExecutorConfig(num_device_blocks=16, host_cache_memory=0)
LIBRARY = "tensorrt_llm/libs/libnvinfer_plugin_tensorrt_llm.so"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the packages are installed; importing tensorrt_llm is a failure unless a test changes that."""
    site = tmp_path / "site"
    for name, version in (("tensorrt_llm", "1.2.1"), ("tensorrt", "10.14.1.48")):
        information = site / f"{name}-{version}.dist-info"
        information.mkdir(parents=True)
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (site / "tensorrt_llm").mkdir()
    (site / "tensorrt_llm/__init__.py").write_text("raise ImportError('MPI cannot start')\n")
    monkeypatch.syspath_prepend(site)
    monkeypatch.delenv("IS_BUILDING", raising=False)
    yield site
    sys.modules.pop("tensorrt_llm", None)


class Library:
    """The plugin library, and what was done with it."""

    answer = True

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[tuple[object, ...]] = []
        monkeypatch.setattr(ctypes, "CDLL", self._load)
        self.initTrtLlmPlugins = _Function(self)

    def _load(self, path: str, mode: int) -> "Library":
        self.done.append(("loaded", path, mode))
        return self


class _Function:
    argtypes: object
    restype: object

    def __init__(self, library: Library) -> None:
        self._library = library

    def __call__(self, logger: object, namespace: bytes) -> bool:
        assert (self.argtypes, self.restype) == ([ctypes.c_void_p, ctypes.c_char_p], ctypes.c_bool)
        self._library.done.append(("registered", logger, namespace))
        return self._library.answer


@pytest.fixture
def library(site: Path, monkeypatch: pytest.MonkeyPatch) -> Library:
    return Library(monkeypatch)


def test_plugins_are_registered_without_the_package_before_the_engine_is_loaded(
    directory: Path, device: StandInDevice, library: Library, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EngineContexts, "__init__", _noting(library, EngineContexts.__init__))
    description = load(directory, SETTINGS, device).describe()
    path = str(site / LIBRARY)
    assert library.done == [("loaded", path, ctypes.RTLD_GLOBAL), ("registered", None, b"tensorrt_llm"), ("engine",)]
    assert "tensorrt_llm" not in sys.modules
    assert (description.kind, description.num_device_blocks, description.num_host_blocks) == ("tensorrt", 16, 0)


def _noting(library: Library, function: Callable[..., None]) -> Callable[..., None]:
    def noted(*arguments: object) -> None:
        library.done.append(("engine",))
        function(*arguments)

    return noted


def test_where_the_library_cannot_be_loaded_alone_the_package_is_imported(
    directory: Path, device: StandInDevice, site: Path
) -> None:
    (site / "tensorrt_llm/__init__.py").write_text("")
    load(directory, SETTINGS, device)
    assert "tensorrt_llm" in sys.modules


def test_where_neither_works_both_reasons_are_given(directory: Path, device: StandInDevice, site: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"cannot be loaded \(.*No such file.*the package: .*imported: MPI cannot start"
    ):
        load(directory, SETTINGS, device)


def test_plugins_that_do_not_register_are_refused(directory: Path, device: StandInDevice, library: Library) -> None:
    library.answer = False
    with pytest.raises(ConfigError, match="does not register its plugins with this TensorRT"):
        load(directory, SETTINGS, device)


def test_an_environment_in_which_attention_would_not_compute_is_refused(
    directory: Path, device: StandInDevice, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IS_BUILDING", "1")
    with pytest.raises(ConfigError, match="IS_BUILDING is set"):
        load(directory, SETTINGS, device)


def test_a_package_that_is_not_installed_is_named(directory: Path, device: StandInDevice) -> None:
    with pytest.raises(ConfigError, match=r"needs tensorrt_llm: install jetway-llm\[tensorrt\]"):
        load(directory, SETTINGS, device)


def test_an_engine_of_two_ranks_is_refused_by_one(tmp_path: Path, device: StandInDevice, library: Library) -> None:
    write_document(make_document(), tmp_path)
    with pytest.raises(ConfigError, match=r"means 2 ranks \(tp_size 2 and pp_size 1\), and 1 run it"):
        load(tmp_path, SETTINGS, device)


def test_ranks_import_the_package_and_need_a_gpu_each(
    directory: Path, device: StandInDevice, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four on one machine; no library is loaded beside the package."""
    with pytest.raises(ConfigError, match="tensorrt_llm cannot be imported: MPI cannot start"):
        import_package()
    monkeypatch.setenv("IS_BUILDING", "1")
    with pytest.raises(ConfigError, match="IS_BUILDING is set"):
        import_package()
    four = Meeting(4).ranks()
    with ThreadPoolExecutor(4) as threads:
        for _ in threads.map(lambda ranks: check_devices(ranks, f"host-{ranks.rank // 2}", 2), four):
            pass
        crowded = [threads.submit(check_devices, ranks, "host", 3) for ranks in four]
    for each in crowded:
        with pytest.raises(ConfigError, match="4 ranks run on host, each on a GPU of its own, and it has 3"):
            each.result()


def test_a_rank_loads_with_the_package_and_knows_its_place(
    tmp_path: Path, model: Llama, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is then assembled is shown by test_many_ranks."""
    (site / "tensorrt_llm/__init__.py").write_text("")
    write_document(make_document(), tmp_path)
    places = list[int]()
    monkeypatch.setattr(loading, "assemble", lambda *arguments: places.append(arguments[-1].rank))
    device = make_device(model, Sizes())
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda ranks: load(tmp_path, SETTINGS, device, ranks), Meeting(2).ranks()))
    assert sorted(places) == [0, 1] and "tensorrt_llm" in sys.modules


def test_a_file_that_tensorrt_does_not_take_is_refused(
    directory: Path, device: StandInDevice, library: Library
) -> None:
    plan = directory / "rank0.engine"
    plan.write_bytes(bytes(plan.stat().st_size))
    with pytest.raises(ConfigError, match="TensorRT cannot load .*rank0.engine"):
        load(directory, SETTINGS, device)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, 45),  # of 100 KiB free, 90 % are 45 blocks of 2 KiB
        ({"free_gpu_memory_fraction": 0.5}, 25),
        ({"kv_cache_memory": 7 * 2048 + 5}, 7),
        ({"num_device_blocks": 9}, 9),
    ],
)
def test_the_pool_takes_what_it_is_told_to_or_most_of_what_is_free(
    directory: Path, settings: dict[str, Any], expected: int
) -> None:
    manifest = read(directory)
    assert manifest.tensorrt is not None and manifest.block_bytes == 2048
    layout = KvLayout.of(manifest, RankPart.of(manifest, 0))
    assert num_blocks(manifest, layout, ExecutorConfig(**settings), 100 << 10) == expected


def test_no_room_for_a_block_and_more_blocks_than_offsets_reach_are_refused(directory: Path) -> None:
    manifest = read(directory)
    assert manifest.tensorrt is not None
    layout = KvLayout.of(manifest, RankPart.of(manifest, 0))
    with pytest.raises(ConfigError, match="2000 bytes are free on the GPU beside the engine, of which"):
        num_blocks(manifest, layout, ExecutorConfig(), 2000)
    with pytest.raises(ConfigError, match="offsets reach 536870912"):
        num_blocks(manifest, layout, ExecutorConfig(num_device_blocks=536870913), 2000)
    assert num_blocks(manifest, layout, ExecutorConfig(), 1 << 60) == 536870912


@pytest.mark.skipif(os.path.exists("/dev/nvidia0"), reason="there is a GPU")
def test_without_a_gpu_serving_says_so(directory: Path) -> None:
    with pytest.raises(ConfigError, match="needs an NVIDIA GPU, and torch finds none"):
        load_engine(ServeConfig(engine=directory))


def test_no_module_loads_torch_or_tensorrt_when_it_is_imported() -> None:
    names = sorted(path.stem for path in Path(*tensorrt.__path__).glob("*.py"))
    assert "sampling" in names
    imports = "; ".join(f"import {tensorrt.__name__}.{name}" for name in names if name != "__init__")
    code = f"import sys; sys.modules.update(torch=None, tensorrt=None); {imports}"
    subprocess.run([sys.executable, "-c", code], check=True)
