"""Runs the supervisor over `role.py`: `supervise.py [ROLE=BEHAVIOUR ...]`; settings come from the environment."""

import asyncio
import os
import sys
from pathlib import Path

from jetway.runtime.errors import ConfigError
from jetway.runtime.launcher import ROLES
from jetway.runtime.layers import resolve
from jetway.runtime.logs import console
from jetway.runtime.settings import Given
from jetway.runtime.supervisor import Supervisor

ROLE_PROGRAM = str(Path(__file__).with_name("role.py"))


def main() -> int:
    behaviours = dict.fromkeys(ROLES, "serve") | dict(word.split("=") for word in sys.argv[1:])
    resolved = resolve({"engine": Given("engine", "test")}, os.environ, None)
    try:
        with console(resolved.config.log_format) as way_out:
            supervisor = Supervisor(
                resolved, lambda role: [sys.executable, ROLE_PROGRAM, role, behaviours[role]], way_out
            )
            return asyncio.run(supervisor.run())
    except ConfigError as error:
        print(error.message)
        return 2


if __name__ == "__main__":
    sys.exit(main())
