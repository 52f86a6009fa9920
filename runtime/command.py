"""What the command `jetway` does. What is heavy is imported late: `--help` and `--version` answer at once."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from .arguments import parse
from .errors import ConfigError, JetwayError
from .layers import Resolved, resolve
from .output import complain, printing

if TYPE_CHECKING:
    from .admin_client import Gateway


def run(argv: Sequence[str]) -> int:
    """Exit status: 0 done, 1 a part was lost, does not answer or fails a check, 2 a wrong setting, said in one line."""
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
        return _status(args)
    if args.command == "drain":
        return _drain(args)
    if args.command == "triton-repo":
        return _triton_repo(args.output, args.url, args.kserve_dialect)
    if args.command == "key":
        return _key(args.name)
    if args.command == "doctor":
        return _doctor(args.engine, args.report)
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
    from .mpirun import num_ranks
    from .preflight import check, read_manifest
    from .supervisor import Supervisor

    config = resolved.config
    check(config)
    command = role_command(config, num_ranks(read_manifest(config.engine), config.executor))
    with console(config.log_format) as way_out:
        return asyncio.run(Supervisor(resolved, command, way_out).run())


def _triton_repo(directory: Path, url: str, dialect: Literal["inflight", "llmapi"]) -> int:
    from .triton.repository import write  # late: it needs what the gateway does

    names = write(directory, url, dialect)
    with printing():
        print(f"{directory}: {', '.join(names)}, for the gateway at {url}")
        print(f"tritonserver --model-repository={directory}")
    return 0


def _status(args: argparse.Namespace) -> int:
    from . import status  # late: it needs grpc

    gateway = _gateway(args)
    render = status.as_json if args.json else status.as_text
    with printing():
        if args.watch is None:
            status.show(gateway, render)
        else:
            status.watch(gateway, render, args.watch)
    return 0


def _drain(args: argparse.Namespace) -> int:
    _gateway(args).drain()
    with printing():
        print("draining: open requests may end, then all of it stops")
    return 0


def _gateway(args: argparse.Namespace) -> "Gateway":
    from jetway.client_channel import Tls  # late, like the next: they need grpc

    from .admin_client import Gateway

    files = {"ca": args.tls_ca, "certificate": args.tls_certificate, "key": args.tls_key}
    tls = Tls(**files) if args.tls or any(files.values()) else None
    return Gateway(args.address, os.environ.get("JETWAY_API_KEY"), tls)


def _key(name: str) -> int:
    from .new_key import make

    with printing():
        print(make(name), end="")
    return 0


def _doctor(engine: Path | None, report: Path | None) -> int:
    from .doctor import examine, findings  # late: they need numpy

    made = list[findings.Finding]()
    if report is not None:
        _write(report, "")  # fails now, not after all of it
    with printing():
        for finding in examine.examine(engine):
            made.append(finding)
            print(finding, flush=True)
    if report is not None:
        _write(report, findings.as_report(made))
    return int(any(finding.outcome is findings.Outcome.FAILED for finding in made))


def _write(report: Path, text: str) -> None:
    try:
        report.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"the report cannot be written to {report}: {error.strerror}") from error
