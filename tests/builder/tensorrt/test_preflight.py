"""What stands in the way of a build is said before it starts, all of it, each with its remedy."""

from pathlib import Path
from typing import Any

import pytest

from jetway.builder import disk
from jetway.builder.errors import MachineError
from jetway.builder.tensorrt import preflight
from tests.builder.tensorrt.conversions import make_plan
from tests.builder.tensorrt.machines import H100, VERSIONS, make_machine

INSTALL = "Install it on Python 3.12: pip install 'jetway-llm[tensorrt]'."
ADA, AMPERE, TURING = H100._replace(compute_capability=(8, 9)), (8, 0), (7, 5)
RANK_BYTES = 112_448 * 2
HALF_BYTES = 131_968  # of two ranks, each with the whole embedding and the norms
INT8_BYTES = 151_168  # with the embedding and the head in 16 bits


@pytest.fixture(autouse=True)
def _disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "free_bytes", lambda directory: 1 << 40)


def problems(checkpoint: Path, machine: dict[str, Any], **options: Any) -> list[str]:
    try:
        preflight.check(make_plan(checkpoint, **options), make_machine(**machine))
    except MachineError as error:
        first, *lines, last = str(error).splitlines()
        assert first == "this machine cannot build a TensorRT engine:"
        assert last == "  To see the build without it: --dry-run. To convert only: --convert-only."
        return [line.removeprefix("  ") for line in lines]
    return []


@pytest.mark.parametrize(
    ("machine", "options"),
    [
        ({}, {}),
        ({"versions": VERSIONS | {"tensorrt": "10.14"}}, {}),
        ({"gpus": (ADA,)}, {"quantization": "fp8", "kv_cache_dtype": "fp8", "calib_dataset": Path("texts")}),
        ({"gpus": (H100._replace(compute_capability=(12, 0)),)}, {"quantization": "int8"}),
        ({"gpus": (H100._replace(free_bytes=RANK_BYTES),)}, {}),
        ({"available_bytes": 2 * RANK_BYTES}, {}),
    ],
)
def test_enough(tiny_checkpoint: Path, machine: dict[str, Any], options: dict[str, Any]) -> None:
    assert problems(tiny_checkpoint, machine, **options) == []


@pytest.mark.parametrize(
    ("machine", "options", "problem"),
    [
        ({"versions": {"tensorrt": "10.14.1"}}, {}, f"tensorrt_llm is not installed. {INSTALL}"),
        (
            {"versions": VERSIONS | {"tensorrt_llm": "1.2.10"}},
            {},
            f"tensorrt_llm 1.2.10 is installed, and engines are built with 1.2.1. {INSTALL}",
        ),
        (
            {"versions": VERSIONS | {"tensorrt": "10.15.1"}},
            {},
            f"tensorrt 10.15.1 is installed, and engines are built with 10.14. {INSTALL}",
        ),
        (
            {"gpus": ()},
            {},
            "nvidia-smi shows no GPU. Install NVIDIA's driver, or build on a machine that has one.",
        ),
        (
            {"gpus": (), "complaints": ("nvidia-smi says: No devices were found",)},
            {},
            (
                "nvidia-smi shows no GPU (nvidia-smi says: No devices were found). Install NVIDIA's driver, or build on "
                "a machine that has one."
            ),
        ),
        (
            {"gpus": (H100, H100._replace(name="NVIDIA L4", compute_capability=(8, 9)))},
            {},
            (
                "its GPUs differ (NVIDIA H100, NVIDIA L4), and an engine runs on one kind. Choose by "
                "CUDA_VISIBLE_DEVICES."
            ),
        ),
        (
            {"gpus": (H100._replace(driver_version="570.86.10"),)},
            {},
            "NVIDIA H100 has driver 570.86.10, and CUDA 13 needs 580. Update the driver.",
        ),
        (
            {"gpus": (H100._replace(compute_capability=TURING),)},
            {},
            "NVIDIA H100 has compute capability 7.5, and TensorRT-LLM needs 8.0. Use a newer GPU.",
        ),
        (
            {"gpus": (H100._replace(compute_capability=AMPERE),)},
            {"kv_cache_dtype": "fp8"},
            ("NVIDIA H100 has compute capability 8.0, and fp8 needs 8.9. Leave fp8 out, or use a newer GPU."),
        ),
        (
            {"gpus": (H100._replace(compute_capability=(10, 3)),)},
            {"quantization": "int4"},
            (
                "NVIDIA H100 has compute capability 10.3, for which TensorRT-LLM has no int8 and int4 weights and no "
                "int8 cache. Use fp8 or neither."
            ),
        ),
        (
            {"gpus": (H100._replace(free_bytes=RANK_BYTES - 1),)},
            {},
            "a rank's weights take 0.0 GB, and NVIDIA H100 has 0.0 GB free. Raise --tp-size.",
        ),
        (
            {"available_bytes": 2 * 2 * HALF_BYTES - 1},
            {"tp_size": 2},
            (
                "2 ranks at a time take 0.0 GB of memory, and 0.0 GB are available. Lower --workers, or use a larger "
                "machine."
            ),
        ),
    ],
)
def test_not_enough(tiny_checkpoint: Path, machine: dict[str, Any], options: dict[str, Any], problem: str) -> None:
    assert problems(tiny_checkpoint, machine, **options) == [problem]


def test_fewer_workers_take_less_memory(tiny_checkpoint: Path) -> None:
    machine = {"available_bytes": 2 * 2 * HALF_BYTES - 1}
    assert problems(tiny_checkpoint, machine, tp_size=2, workers=1) == []


def test_disk(tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the checkpoint in 16 bits and the engine beside it."""
    monkeypatch.setattr(disk, "free_bytes", lambda directory: RANK_BYTES + INT8_BYTES - 1)
    assert problems(tiny_checkpoint, {}, quantization="int8") == [
        (
            f"the converted checkpoint and the engine take 0.0 GB, and 0.0 GB are free at "
            f"{tiny_checkpoint.parent / 'engine'}. Make room, or choose another --output-dir."
        )
    ]
    monkeypatch.setattr(disk, "free_bytes", lambda directory: RANK_BYTES + INT8_BYTES)
    assert problems(tiny_checkpoint, {}, quantization="int8") == []


def test_a_busy_gpu_that_no_rank_takes_does_not_matter(tiny_checkpoint: Path) -> None:
    gpus = (H100, H100._replace(free_bytes=0))
    assert problems(tiny_checkpoint, {"gpus": gpus}) == []
    assert len(problems(tiny_checkpoint, {"gpus": gpus}, tp_size=2)) == 1


def test_what_all_gpus_lack_is_said_once(tiny_checkpoint: Path) -> None:
    old = H100._replace(driver_version="570.86.10")
    assert len(problems(tiny_checkpoint, {"gpus": (old, old._replace(uuid="GPU-b"))}, tp_size=2)) == 1


def test_everything_is_said_at_once(tiny_checkpoint: Path) -> None:
    assert len(problems(tiny_checkpoint, {"gpus": (), "versions": {}})) == 3


def test_conversion_by_tensorrt_llm_needs_it(tiny_checkpoint: Path) -> None:
    planned = make_plan(tiny_checkpoint, quantization="fp8", calib_dataset=Path("texts"))
    with pytest.raises(MachineError) as refused:
        preflight.check_conversion(planned, make_machine(versions={}))
    assert str(refused.value) == (
        f"TensorRT-LLM itself converts such a model, and tensorrt_llm is not installed. {INSTALL}"
    )
    with pytest.raises(MachineError, match="measured on a GPU"):
        preflight.check_conversion(planned, make_machine(gpus=()))
    preflight.check_conversion(planned, make_machine())
