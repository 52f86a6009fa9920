"""The command line of `jetway`: what may be written, and what was."""

import argparse
import re
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

from .config import GatewayConfig
from .errors import ConfigError
from .settings import MAPS, SECTIONS, SETTINGS, Given, Setting
from .spellings import instead, said_as

_ADDRESS = f"{GatewayConfig().host}:{GatewayConfig().grpc_port}"
_ADDRESS_HELP = "a gateway's gRPC address (default: %(default)s)"
_ADMIN_KEY = "Where the server has API keys, JETWAY_API_KEY holds one with `admin: true`."
_TLS_FLAGS = ("--tls", "--tls-ca", "--tls-certificate", "--tls-key")


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


class _Switch(_Record):
    """Without a value: `--x` says true, `--no-x` false."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option_string: str | None = None,
    ) -> None:
        spelling = str(option_string).removeprefix("--")
        text = "false" if spelling.startswith("no-") else "true"
        said = said_as(spelling.removeprefix("no-").replace("-", "_"), text)
        super().__call__(parser, namespace, said, option_string)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Raises ConfigError for what is not known, and says what is near."""
    args, unknown = _parser().parse_known_args(argv)
    if args.command is None:
        raise ConfigError("no command given; try `jetway serve ENGINE` or `jetway --help`")
    for word in unknown:
        raise ConfigError(f"unknown argument {word}{instead(word.split('=')[0], args.flags)}")
    return args


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="jetway", description="Serve an engine directory that build-engine made.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"jetway {version('jetway-llm')}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    _add_serve(commands)
    _add_status(commands)
    _add_drain(commands)
    _add_doctor(commands)
    _add_triton_repo(commands)
    _add_key(commands)
    return parser


def _add_serve(commands: "argparse._SubParsersAction[_Parser]") -> None:
    serve = commands.add_parser(
        "serve",
        help="serve an engine directory",
        description="Serve an engine directory: executor, scheduler and gateway, each a process.",
        epilog="Every key can also stand in the environment (JETWAY_<KEY>) and in the --config file; a flag wins over "
        "the environment, the environment over the file. Service classes and tenants stand in the file only.",
        allow_abbrev=False,
    )
    own = {"--config", "--print-config"}
    serve.set_defaults(given={}, flags=own.union(*(setting.flags for setting in SETTINGS.values())))
    serve.add_argument("engine", nargs="?", metavar="ENGINE", action=_Record, help=SETTINGS["engine"].help)
    sections = ", ".join([*SECTIONS, *MAPS])
    serve.add_argument("--config", type=Path, metavar="FILE", help=f"YAML with the sections {sections}")
    serve.add_argument(
        "--print-config", action="store_true", help="print the configuration and where each value came from, and exit"
    )
    groups = {name: serve.add_argument_group(name, section.__doc__) for name, section in SECTIONS.items()}
    for setting in SETTINGS.values():
        if not setting.required:
            _add_flag(groups[setting.section] if setting.section else serve, setting)


def _add_status(commands: "argparse._SubParsersAction[_Parser]") -> None:
    status = commands.add_parser(
        "status",
        help="show the queues, pools and counts of a running server",
        description="Show how a running server stands: queues by class, pools, preemptions, and why the next does not run.",
        epilog=_ADMIN_KEY,
        allow_abbrev=False,
    )
    status.set_defaults(flags=("--address", "--json", "--watch", *_TLS_FLAGS))
    status.add_argument("--address", default=_ADDRESS, metavar="HOST:PORT", help=_ADDRESS_HELP)
    status.add_argument("--json", action="store_true", help="one line of JSON")
    status.add_argument("--watch", type=_seconds, metavar="S", help="again every S seconds, until Ctrl-C")
    _add_tls(status)


def _add_drain(commands: "argparse._SubParsersAction[_Parser]") -> None:
    drain = commands.add_parser(
        "drain",
        help="let open requests end, and stop a running server",
        description="Stop a running server as SIGTERM does: open requests may end within drain_timeout_s.",
        epilog=_ADMIN_KEY,
        allow_abbrev=False,
    )
    drain.set_defaults(flags=_TLS_FLAGS)
    drain.add_argument("address", nargs="?", default=_ADDRESS, metavar="HOST:PORT", help=_ADDRESS_HELP)
    _add_tls(drain)


def _add_tls(parser: _Parser) -> None:
    parser.add_argument(
        "--tls", action="store_true", help="the server has a certificate that a public authority signed"
    )
    parser.add_argument("--tls-ca", metavar="FILE", help="PEM file of who signed the server's certificate")
    parser.add_argument("--tls-certificate", metavar="FILE", help="PEM file of a client certificate")
    parser.add_argument("--tls-key", metavar="FILE", help="PEM file of its private key")


def _add_key(commands: "argparse._SubParsersAction[_Parser]") -> None:
    key = commands.add_parser(
        "key",
        help="make an API key",
        description="Make an API key: prints the key, for the client, and its entry in the server's configuration file.",
        allow_abbrev=False,
    )
    key.set_defaults(flags=())
    key.add_argument("name", metavar="NAME", help="the key's name in the file; its tenant too, unless the file says so")


def _add_triton_repo(commands: "argparse._SubParsersAction[_Parser]") -> None:
    repo = commands.add_parser(
        "triton-repo",
        help="write a model repository for a Triton server in front of Jetway",
        description="Write a model repository: under the names of tensorrtllm_backend, models for Triton's Python backend "
        "that hand their requests to a Jetway gateway.",
        allow_abbrev=False,
    )
    gateway = GatewayConfig()
    repo.set_defaults(flags=("--output", "--url", "--kserve-dialect"))
    repo.add_argument("--output", type=Path, required=True, metavar="DIR", help="made, or renewed where it is there")
    repo.add_argument(
        "--url",
        type=_gateway_url,
        default=f"http://{gateway.host}:{gateway.port}",
        help="the gateway, as Triton reaches it: http, https, grpc or grpcs (default: %(default)s)",
    )
    repo.add_argument(
        "--kserve-dialect",
        default=gateway.kserve_dialect,
        choices=("inflight", "llmapi"),
        help="what tensorrt_llm is; as the gateway has it (default: %(default)s)",
    )


def _add_doctor(commands: "argparse._SubParsersAction[_Parser]") -> None:
    doctor = commands.add_parser(
        "doctor",
        help="check this machine, and an engine on it",
        description="Check versions, GPU and sampler; run ENGINE: its tokens, a swap there and back, copy rates, step times. "
        "Run it in the executor's environment. What cannot be checked here is named.",
        allow_abbrev=False,
    )
    doctor.set_defaults(flags=("--report",))
    doctor.add_argument("engine", nargs="?", type=Path, metavar="ENGINE", help="an engine directory")
    doctor.add_argument("--report", type=Path, metavar="FILE", help="write all of it there too, to attach to an issue")


def _gateway_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        is_address = bool(parts.hostname) and parts.port != 0 and "@" not in parts.netloc
        is_url = parts.scheme in ("http", "https", "grpc", "grpcs") and is_address and not re.search(r"[\s?#]", text)
    except ValueError:
        is_url = False
    if not is_url:
        raise argparse.ArgumentTypeError(f"must be like http://HOST:PORT or grpc://HOST:PORT, not {text!r}")
    if parts.scheme.startswith("grpc") and (parts.port is None or text != f"{parts.scheme}://{parts.netloc}"):
        raise argparse.ArgumentTypeError(f"must be {parts.scheme}://HOST:PORT for gRPC, not {text!r}")
    return text


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 86_400:
        raise argparse.ArgumentTypeError(f"must be a number from 0.1 to 86400, not {text!r}")
    return seconds


def _add_flag(group: argparse._ActionsContainer, setting: Setting) -> None:
    help = f"{setting.help} (default: {setting.format(setting.field.default)})"
    if setting.type is bool:
        group.add_argument(*setting.flags, dest=setting.name, action=_Switch, nargs=0, help=help)
    else:
        metavar = "|".join(setting.choices) or setting.name.rsplit("_", 1)[-1].upper()
        group.add_argument(*setting.flags, dest=setting.name, action=_Record, metavar=metavar, help=help)
