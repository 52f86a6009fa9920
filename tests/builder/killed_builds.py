"""Builds that are killed, one in each stage: `killed_builds.py CHECKPOINT DIRECTORY`, engines in DIRECTORY/<stage>.

A process apart from the tests', since it forks: what a build imports is imported once, and before any thread is there.
"""

import os
import signal
import sys
from pathlib import Path

from jetway.builder import offline

offline.enforce()

from jetway.builder import huggingface, openvino, quantize, validate, verify  # noqa: F401
from jetway.builder.progress import Progress
from jetway.builder.spec import BuildSpec
from jetway.builder.stages import build

STAGES = ("inspect", "validate", "convert", "compile", "manifest", "verify")


def build_until(stage: str, spec: BuildSpec) -> None:
    """Build, and die when `stage` begins."""

    def show(text: str) -> None:
        if text.strip() == stage:
            os.kill(os.getpid(), signal.SIGKILL)

    build(spec, Progress(show), force=False)


def main(checkpoint: Path, directory: Path) -> None:
    for stage in STAGES:
        child = os.fork()
        if child == 0:
            build_until(stage, BuildSpec(model_dir=checkpoint, output_dir=directory / stage / "engine"))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, (stage, status)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
