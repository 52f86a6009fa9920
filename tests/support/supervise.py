"""Runs the supervisor over `role.py`: `supervise.py [ROLE=BEHAVIOUR ...]`; settings come from the environment.

With `ranks=N` the executor is N ranks under mpirun, of `rank.py`.
"""

import asyncio
import os
import sys
from pathlib import Path

from jetway.runtime.errors import ConfigError
from jetway.runtime.launcher import ROLES
from jetway.runtime.layers import resolve
from jetway.runtime.logs import console
from jetway.runtime.mpirun import start_ranks
from jetway.runtime.settings import Given
from jetway.runtime.supervisor import Supervisor

ROLE_PROGRAM = str(Path(__file__).with_name("role.py"))
RANK_PROGRAM = str(Path(__file__).with_name("rank.py"))


def main() -> int:
    behaviours = dict.fromkeys(ROLES, "serve") | dict(word.split("=") for word in sys.argv[1:])
    num_ranks = int(behaviours.pop("ranks", 1))
    resolved = resolve({"engine": Given("engine", "test")}, os.environ, None)

    def command(role: str) -> list[str]:
        if role == "executor" and num_ranks > 1:
            argv = [sys.executable, RANK_PROGRAM, role, behaviours[role]]
            return start_ranks(argv, resolved.config.executor, num_ranks)
        return [sys.executable, ROLE_PROGRAM, role, behaviours[role]]

    try:
        with console(resolved.config.log_format) as way_out:
            return asyncio.run(Supervisor(resolved, command, way_out).run())
    except ConfigError as error:
        print(error.message)
        return 2


if __name__ == "__main__":
    sys.exit(main())
