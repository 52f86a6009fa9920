"""What a gateway finds around it: under `jetway serve`, or alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from jetway.runtime.config import GatewayConfig
from jetway.runtime.directory import LifeRecord
from jetway.runtime.doors import Doors, open_doors
from jetway.runtime.errors import Unavailable


class Surroundings(Protocol):
    @property
    def scheduler_address(self) -> str:
        """ "unix:/path" or "host:port"."""

    def take_doors(self, config: GatewayConfig) -> Doors:
        """The ports, for the gateway to listen on and to close. Raises ConfigError when one cannot be bound."""

    def drain(self) -> None:
        """Let everything drain and stop. Raises Unavailable when it cannot be told."""

    def lives(self) -> Sequence[LifeRecord]:
        """The processes that serve."""


@dataclass(frozen=True, slots=True)
class Alone:
    """Nobody else uses its ports, and nobody supervises it."""

    scheduler_address: str

    def take_doors(self, config: GatewayConfig) -> Doors:
        return open_doors(config)

    def drain(self) -> None:
        raise Unavailable("nobody supervises this gateway, so it cannot let all of it drain")

    def lives(self) -> Sequence[LifeRecord]:
        return ()
