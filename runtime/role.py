"""One role's process: `python -m jetway.runtime.role ROLE ...`, started by the supervisor."""

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from .doors import Doors
from .errors import ConfigError, JetwayError, Unavailable
from .layers import resolve
from .lifeline import Lifeline
from .logs import log_to_stderr
from .post import Post
from .serve import ROLES, join_ranks


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 stopped, 1 failed, 2 cannot serve as configured."""
    parser = argparse.ArgumentParser(prog="jetway.runtime.role", description="One role of `jetway serve`.")
    parser.add_argument("role", choices=ROLES)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--epoch", type=int, required=True)
    parser.add_argument("--num-ranks", type=int)
    parser.add_argument("--door-fds", type=int, nargs=2, metavar=("HTTP", "GRPC"))
    parser.add_argument("--lifeline", type=Path, required=True)
    args = parser.parse_args(argv)
    try:
        lifeline = Lifeline(args.lifeline)
    except Unavailable as error:
        return _failed(error)
    lifeline.watch()
    ranks = None
    try:
        config = resolve({}, {}, args.config).config
        ranks = join_ranks(args.num_ranks, lifeline) if args.num_ranks else None
        log_to_stderr(config.log_format, config.log_level, args.role, ranks.rank if ranks else None)
        doors = Doors.inherited(*args.door_fds) if args.door_fds else None
        ROLES[args.role](Post(args.role, args.epoch, config, args.config.parent, lifeline, doors, ranks))
    except ConfigError as error:
        lifeline.refuse(error)
        return 2
    except JetwayError as error:
        return _failed(error, "" if ranks is None else f"rank {ranks.rank}: ")
    return 0


def _failed(error: JetwayError, who: str = "") -> int:
    print(f"{who}{error.message}", file=sys.stderr)
    return 1


def run() -> NoReturn:
    """The process: after a fault it leaves at once, for its other threads may wait for what never comes."""
    try:
        status = main()
    except Exception:  # noqa: BLE001  # whatever it is, it is said and ends the process
        traceback.print_exc()
        status = 1
    if status:
        sys.stderr.flush()
        os._exit(status)
    sys.exit()


if __name__ == "__main__":
    run()
