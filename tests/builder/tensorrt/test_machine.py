"""What a machine has, by nvidia-smi and the installed packages."""

from pathlib import Path

import pytest

from jetway.builder.tensorrt import machine
from jetway.builder.tensorrt.machine import Gpu

ANSWER = """GPU-1f, NVIDIA H100 80GB HBM3, 9.0, 580.65.06, 80000
GPU-2e, NVIDIA H100 80GB HBM3, 9.0, 580.65.06, 512
"""
FIRST = Gpu("GPU-1f", "NVIDIA H100 80GB HBM3", (9, 0), "580.65.06", 80000 << 20)
SECOND = FIRST._replace(uuid="GPU-2e", free_bytes=512 << 20)


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of that name that answers so."""
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{ANSWER}END\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return program


def test_gpus(nvidia_smi: Path) -> None:
    assert machine.inspect().gpus == (FIRST, SECOND)
    assert machine.inspect().compute_capability == "9.0"


def test_a_gpu_that_shares_the_machines_memory() -> None:
    line = "GPU-3d, NVIDIA GB10, 12.1, 580.95.05, [N/A]"
    assert machine.parse_gpu(line, 100 << 30) == Gpu("GPU-3d", "NVIDIA GB10", (12, 1), "580.95.05", 100 << 30)


def test_a_name_with_a_comma() -> None:
    line = "GPU-3d, NVIDIA A100, engineering sample, 8.0, 580.95.05, 512"
    assert machine.parse_gpu(line, 0) == Gpu(
        "GPU-3d", "NVIDIA A100, engineering sample", (8, 0), "580.95.05", 512 << 20
    )


@pytest.mark.parametrize(
    "line",
    [
        "No devices were found",
        "Unable to determine the device handle for GPU0: 0000:01:00.0: Unknown Error",
        "GPU-1f, Tesla, [N/A], 580.65.06, 80000",
    ],
)
def test_what_is_no_gpu_is_said(nvidia_smi: Path, line: str) -> None:
    nvidia_smi.write_text(f"#!/bin/sh\necho '{line}'\n")
    found = machine.inspect()
    assert (found.gpus, found.complaints) == ((), (f"nvidia-smi says: {line}",))


@pytest.mark.parametrize(
    ("visible", "gpus"),
    [
        ("1", (SECOND,)),
        ("1, 0", (SECOND, FIRST)),
        ("GPU-1f", (FIRST,)),
        ("GPU-2", (SECOND,)),
        ("", ()),
        ("7", ()),
        ("1,7,0", (SECOND,)),
        ("GPU-", ()),
        ("MIG-1f", ()),
    ],
)
def test_visible_devices(
    nvidia_smi: Path, monkeypatch: pytest.MonkeyPatch, visible: str, gpus: tuple[Gpu, ...]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = machine.inspect()
    assert found.gpus == gpus
    assert [words.split()[2].strip(",") for words in found.complaints] == [
        name for name in ("7", "GPU-", "MIG-1f") if name in visible.split(",")
    ]


def test_a_driver_that_does_not_answer(nvidia_smi: Path) -> None:
    nvidia_smi.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed'\nexit 9\n")
    found = machine.inspect()
    assert (found.gpus, found.complaints) == ((), ("nvidia-smi says: NVIDIA-SMI has failed",))


def test_no_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = machine.inspect()
    assert found.gpus == ()
    assert found.available_bytes > 1 << 20


def test_versions() -> None:
    assert machine.installed(("no-such-package",)) == {}
    assert list(machine.installed(("numpy", "no-such-package"))) == ["numpy"]
