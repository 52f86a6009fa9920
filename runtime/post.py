"""What a role knows of the whole."""

from dataclasses import dataclass
from pathlib import Path

from .config import ServeConfig
from .directory import executor_socket, scheduler_socket
from .lifeline import Lifeline


@dataclass(frozen=True, slots=True)
class Post:
    """The configuration, where the others are, and the role's tie to the supervisor."""

    config: ServeConfig
    directory: Path
    epoch: int
    lifeline: Lifeline

    @property
    def executor_address(self) -> str:
        return f"unix:{executor_socket(self.directory, self.epoch)}"

    @property
    def scheduler_address(self) -> str:
        return f"unix:{scheduler_socket(self.directory)}"
