"""A real Triton server as a process, from the environment that scripts/triton makes."""

import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from jetway.runtime.triton import repository

READY_TIMEOUT_S = 60.0


class TritonServer(NamedTuple):
    http_port: int
    grpc_port: int


class TritonBefore(NamedTuple):
    """A Triton server, and where its models expect Jetway: they talk to `address`, one of its two."""

    server: TritonServer
    jetway_http_port: int
    jetway_grpc_port: int
    address: str


@contextmanager
def triton_before_jetway(venv: Path, scheme: str, work_dir: Path) -> Iterator[TritonBefore]:
    """With the models of `jetway triton-repo` for a URL of this scheme; Jetway's ports are free."""
    ports = {"http": free_port(), "grpc": free_port()}
    address = f"127.0.0.1:{ports[scheme]}"
    repository.write(work_dir / "models", f"{scheme}://{address}", "inflight")
    with running_triton(venv, work_dir / "models", work_dir) as server:
        yield TritonBefore(server, ports["http"], ports["grpc"], address)


@contextmanager
def running_triton(venv: Path, repository: Path, work_dir: Path) -> Iterator[TritonServer]:
    """Ready when entered; told to stop at the end, and killed where it does not."""
    http_port, grpc_port = (free_port() for _ in range(2))
    [packages] = (venv / "lib").glob("python3*/site-packages")
    server = packages / "pytriton" / "tritonserver"
    argv: list[str | Path] = [
        server / "bin" / "tritonserver",
        f"--model-repository={repository}", f"--backend-directory={_backends(server, packages, work_dir)}",
        "--http-address=127.0.0.1", f"--http-port={http_port}",
        "--grpc-address=127.0.0.1", f"--grpc-port={grpc_port}",
        "--allow-metrics=false", "--pinned-memory-pool-byte-size=0", "--exit-timeout-secs=3",
    ]  # fmt: skip
    log = work_dir / "triton.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(argv, env=_environment(venv), stdout=sink, stderr=sink)
    try:
        _wait_until_ready(process, http_port, log)
        yield TritonServer(http_port, grpc_port)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _backends(server: Path, packages: Path, work_dir: Path) -> Path:
    """The Python backend with its stub for this Python. Links: the stub finds its libraries beside where it really is."""
    backend = work_dir / "backends" / "python"
    backend.mkdir(parents=True)
    stub = server / "python_backend_stubs" / packages.parent.name.removeprefix("python") / "triton_python_backend_stub"
    shared = server / "backends" / "python"
    for file in (shared / "libtriton_python.so", shared / "triton_python_backend_utils.py", stub):
        (backend / file.name).symlink_to(file)
    return backend.parent


def _environment(venv: Path) -> dict[str, str]:
    """The stub embeds the Python that it finds first, and needs its library."""
    program = "import sysconfig; print(sysconfig.get_config_var('LIBDIR'))"
    libraries = subprocess.run([venv / "bin" / "python", "-c", program], check=True, capture_output=True, text=True)
    others = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return others | {"PATH": f"{venv / 'bin'}:{os.environ['PATH']}", "LD_LIBRARY_PATH": libraries.stdout.strip()}


def _wait_until_ready(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/health/ready") as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.01)
    raise AssertionError(f"Triton did not become ready:\n{log.read_text(errors='replace')[-2000:]}")
