"""The entry of the command `jetway`. All imports are inside: a Ctrl-C is quiet from the first moment on."""

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: what `command.run` says, or 130 after a Ctrl-C that came before or between its work."""
    try:
        from .command import run

        return run(sys.argv[1:] if argv is None else argv)
    except KeyboardInterrupt:
        return 130
