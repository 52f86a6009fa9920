"""What can go wrong in a build.

    BuildError
    ├── OptionError       a flag has a value that cannot be built
    ├── CheckpointError   the checkpoint is incomplete, wrong or unsupported
    ├── OutputError       the output directory is in the way, in use or not writable
    ├── MachineError      this machine cannot build it: GPU, driver, packages, memory, disk
    ├── ConversionError   torch, OpenVINO or TensorRT-LLM cannot express or compile the model
    └── VerifyError       the engine was built but computes something else than the checkpoint

Each message is for the person at the keyboard: the file or flag, the field, the value and the remedy. Foreign
exceptions are translated where they enter.
"""

from pathlib import Path


class BuildError(Exception):
    """A build ended without an engine, and changed nothing on disk."""


class OptionError(BuildError):
    pass


class CheckpointError(BuildError):
    def __init__(self, file: Path, problem: str, remedy: str) -> None:
        super().__init__(f"{file}: {problem}. {remedy}.")


class OutputError(BuildError):
    pass


class MachineError(BuildError):
    pass


class ConversionError(BuildError):
    pass


class VerifyError(BuildError):
    pass
