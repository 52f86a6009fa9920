"""A role without work, run as a program by the supervisor's tests: `role.py ROLE BEHAVIOUR` and the supervisor's flags.

A role that has announced itself beats, ends with status 0 at SIGHUP, and ends with status 7 once a file of its own name
lies beside the configuration.

serve      announce, wait for SIGTERM, exit 0
hang       announce, and beat no more once the file `hang` lies beside the configuration
crash      exit 3 before it is ready
once       the first life serves, and all others crash
drain      announce, and ask for a drain of everything
refuse     refuse the configuration
mute       never announce anything
deaf       the same, inside one call that lets no other thread run
stubborn   announce, ignore SIGTERM and SIGHUP
chatty     write far more than a pipe holds, then announce and let the file `said` appear beside the configuration
"""

import argparse
import os
import signal
import sys
import time
from pathlib import Path

from jetway.runtime.directory import life_socket
from jetway.runtime.errors import ConfigError
from jetway.runtime.lifeline import Lifeline

NUM_ROLES = 3


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("role")
    parser.add_argument("behaviour")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--epoch", type=int, required=True)
    parser.add_argument("--door-fds", type=int, nargs=2)
    parser.add_argument("--lifeline", type=Path, required=True)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.SIG_IGN if args.behaviour == "stubborn" else _stop)
    signal.signal(signal.SIGHUP, signal.SIG_IGN if args.behaviour == "stubborn" else _retire)
    lifeline = Lifeline(args.lifeline)
    lifeline.watch()
    args.config.with_name(f"{args.role}-watches").touch()
    print("starting", file=sys.stderr)
    if args.behaviour == "crash" or (args.behaviour == "once" and args.epoch > NUM_ROLES):
        return 3
    if args.behaviour == "refuse":
        lifeline.refuse(ConfigError("threads must be even"))
        return 2
    if args.behaviour == "deaf":
        sum(range(10**15))
    if args.behaviour == "chatty":
        print("x" * 100 * 10_000 + "\n" + ("x" * 99 + "\n") * 100_000, file=sys.stderr)
    if args.behaviour != "mute":
        life_socket(args.config.parent, args.role, args.epoch).touch()
        lifeline.announce({"pid": str(os.getpid()), "config": str(args.config)})
    if args.behaviour == "chatty":
        args.config.with_name("said").touch()
    if args.behaviour == "drain":
        lifeline.drain()
    lost, hang = args.config.with_name(args.role), args.config.with_name("hang")
    while not lost.exists():
        if not (args.behaviour == "hang" and hang.exists()):
            lifeline.beat()
        time.sleep(0.005)
    lost.unlink()
    print("something broke", file=sys.stderr)
    return 7


def _retire(number: int, frame: object) -> None:
    print("retired", file=sys.stderr)
    sys.exit(0)


def _stop(number: int, frame: object) -> None:
    print("stopped", file=sys.stderr)
    sys.exit(0)


if __name__ == "__main__":
    sys.exit(main())
