"""A role's end of the two pipes that tie it to its supervisor."""

import json
import os
import threading
from collections.abc import Mapping

from .errors import ConfigError


class Lifeline:
    """Ends this process when the supervisor is gone, and tells the supervisor once how the start went."""

    def __init__(self, lifeline_fd: int, ready_fd: int) -> None:
        self._lifeline_fd = lifeline_fd
        self._ready_fd = ready_fd

    def watch(self) -> None:
        """From now on the process exits at once when the supervisor's end closes, whatever else it is doing."""
        threading.Thread(target=self._wait_for_the_end, name="lifeline", daemon=True).start()

    def announce(self, facts: Mapping[str, str]) -> None:
        """Say that this role serves; `facts` are shown to the user, one a line. Called once."""
        self._send({"ready": dict(facts)})

    def refuse(self, error: ConfigError) -> None:
        """Say that this role cannot serve as configured. Called once, instead of `announce`."""
        self._send({"refused": error.message})

    def _send(self, message: dict[str, object]) -> None:
        with os.fdopen(self._ready_fd, "w") as pipe:
            pipe.write(json.dumps(message) + "\n")

    def _wait_for_the_end(self) -> None:
        os.read(self._lifeline_fd, 1)  # nobody writes: it returns when the supervisor has closed or died
        os._exit(1)
