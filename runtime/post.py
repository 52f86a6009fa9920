"""What a role knows of the whole."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .config import GatewayConfig, ServeConfig
from .directory import LifeRecord, life_socket, lives, role_socket
from .doors import Doors
from .lifeline import Lifeline

if TYPE_CHECKING:
    from .executor.mpi_ranks import MpiRanks

STOP_GRACE_S = 1.0  # what open calls get once a role is told to stop; the gateway has drained by then


@dataclass(frozen=True, slots=True)
class Post:
    """The configuration, where it listens and finds the others, and its tie to the supervisor.

    `epoch` grows from life to life, over all roles: of two lives the one with the greater epoch is the present one.
    """

    role: str
    epoch: int
    config: ServeConfig
    directory: Path
    lifeline: Lifeline
    doors: Doors | None  # a gateway's
    ranks: "MpiRanks | None" = None  # an executor's, where there are several

    @property
    def address(self) -> str:
        """Where this life listens, and no other ever does."""
        return f"unix:{life_socket(self.directory, self.role, self.epoch)}"

    @property
    def executor_address(self) -> str:
        """Of the present executor, whichever life that is."""
        return f"unix:{role_socket(self.directory, 'executor')}"

    @property
    def scheduler_address(self) -> str:
        """Of the present scheduler, whichever life that is."""
        return f"unix:{role_socket(self.directory, 'scheduler')}"

    # What a gateway finds around it.

    def take_doors(self, config: GatewayConfig) -> Doors:
        assert self.doors is not None, f"the supervisor gives the {self.role} no doors"
        return self.doors

    def drain(self) -> None:
        """Let the supervisor drain and stop everything. Raises Unavailable when it does not take the message."""
        self.lifeline.drain()

    def lives(self) -> list[LifeRecord]:
        """The processes that serve, the oldest first."""
        return lives(self.directory)
