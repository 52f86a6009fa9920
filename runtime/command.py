"""What the command `jetway` does. What is heavy is imported late: `--help` and `--version` answer at once."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from .arguments import parse
from .errors import ConfigError, JetwayError
from .layers import Resolved, resolve
from .output import complain, printing


def run(argv: Sequence[str]) -> int:
    """Exit status: 0 done, 1 a part was lost or does not answer, 2 a wrong setting, said in one line."""
    try:
        return _run(argv)
    except ConfigError as error:
        complain(f"jetway: {error}")
        return 2
    except JetwayError as error:
        complain(f"jetway: {error}")
        return 1


def _run(argv: Sequence[str]) -> int:
    args = parse(argv)
    if args.command == "status":
        return _status(args.address, json=args.json, every_s=args.watch)
    if args.command == "triton-repo":
        return _triton_repo(args.output, args.url, args.kserve_dialect)
    resolved = resolve(args.given, os.environ, args.config)
    return _print(resolved) if args.print_config else _serve(resolved)


def _print(resolved: Resolved) -> int:
    with printing():
        print(resolved.to_yaml(), end="")
    return 0


def _serve(resolved: Resolved) -> int:
    import asyncio  # all of these late: `--print-config` needs none

    from .launcher import role_command
    from .logs import console
    from .preflight import check
    from .supervisor import Supervisor

    check(resolved.config)
    with console(resolved.config.log_format) as way_out:
        return asyncio.run(Supervisor(resolved, role_command(resolved.config), way_out).run())


def _triton_repo(directory: Path, url: str, dialect: Literal["inflight", "llmapi"]) -> int:
    from .triton.repository import write  # late: it needs what the gateway does

    names = write(directory, url, dialect)
    with printing():
        print(f"{directory}: {', '.join(names)}, for the gateway at {url}")
        print(f"tritonserver --model-repository={directory}")
    return 0


def _status(address: str, *, json: bool, every_s: float | None) -> int:
    from . import status  # late: it needs grpc

    render = status.as_json if json else status.as_text
    with printing():
        if every_s is None:
            status.show(address, render)
        else:
            status.watch(address, render, every_s)
    return 0
