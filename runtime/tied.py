"""Becomes a program that knows nothing of us, and ends with our parent: `python -m jetway.runtime.tied PROGRAM [...]`."""

import os
import sys

from .lifeline import die_with_parent

if __name__ == "__main__":
    die_with_parent()
    os.execv(sys.argv[1], sys.argv[1:])
