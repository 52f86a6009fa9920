"""The `jetway` command. It imports nothing heavy: `--help` and `--version` answer at once."""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn

from .errors import ConfigError
from .layers import Given, Layer, nearest, resolve
from .settings import ALIASES, SECTIONS, SETTINGS, Setting


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message} (see {self.prog} --help)")


class _Record(argparse.Action):
    """Keeps the text and the spelling that was used; the layers parse it."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option_string: str | None = None,
    ) -> None:
        if values is not None:  # an absent ENGINE
            namespace.given[self.dest] = Given(str(values), f"flag {option_string}" if option_string else "argument")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 1 a part was lost, 2 a wrong setting, said in one line."""
    try:
        return _run(sys.argv[1:] if argv is None else argv)
    except ConfigError as error:
        print(f"jetway: {error}", file=sys.stderr)
        return 2


def _run(argv: Sequence[str]) -> int:
    parser = _parser()
    args, unknown = parser.parse_known_args(argv)
    for word in unknown:
        flags = [setting.flag for setting in SETTINGS.values()] + ["--config", "--print-config"]
        raise ConfigError(f"unknown argument {word}{nearest(word.split('=')[0], flags)}")
    if args.command is None:
        raise ConfigError("no command given; try `jetway serve ENGINE` or `jetway --help`")
    return _serve(args.given, args.config, print_only=args.print_config)


def _serve(flags: Layer, config_file: Path | None, *, print_only: bool) -> int:
    from .supervisor import Supervisor, role_command  # late: `--print-config` needs none of it

    resolved = resolve(flags, os.environ, config_file)
    if print_only:
        print(resolved.to_yaml(), end="")
        return 0
    return asyncio.run(Supervisor(resolved, role_command(resolved.config)).run())


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="jetway", description="Serve an engine directory that build-engine made.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"jetway {version('jetway-llm')}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    serve = commands.add_parser(
        "serve",
        help="serve an engine directory",
        description="Serve an engine directory: executor, scheduler and gateway, each a process.",
        epilog="Every key can also stand in the environment (JETWAY_<KEY>) and in the --config file; "
        "a flag wins over the environment, the environment over the file.",
        allow_abbrev=False,
    )
    serve.set_defaults(given={})
    serve.add_argument("engine", nargs="?", metavar="ENGINE", action=_Record, help=SETTINGS["engine"].help)
    serve.add_argument("--config", type=Path, metavar="FILE", help="YAML with the sections " + ", ".join(SECTIONS))
    serve.add_argument(
        "--print-config", action="store_true", help="print the configuration and where each value came from, and exit"
    )
    groups = {name: serve.add_argument_group(name, section.__doc__) for name, section in SECTIONS.items()}
    for setting in SETTINGS.values():
        if not setting.required:
            _add_flag(groups[setting.section] if setting.section else serve, setting)
    return parser


def _add_flag(group: argparse._ActionsContainer, setting: Setting) -> None:
    aliases = ["--" + alias.replace("_", "-") for alias, name in ALIASES.items() if name == setting.name]
    group.add_argument(
        setting.flag,
        *aliases,
        dest=setting.name,
        action=_Record,
        metavar=setting.name.rsplit("_", 1)[-1].upper(),
        help=f"{setting.help} (default: {setting.format(setting.field.default)})",
    )
