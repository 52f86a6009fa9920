"""A checkpoint's chat template, tried on a short conversation before it becomes part of an engine.

A template is a program from a stranger. It runs in a process of its own, in transformers' sandbox, with bounds on time,
memory and output; whatever happens there, the build goes on to say what it was.
"""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .errors import CheckpointError

CPU_S = 3
WALL_S = 60  # a busy machine may need it to start the process
MEMORY_BYTES = 2 << 30  # of address space, of which the interpreter and its libraries take a part
OUTPUT_CHARS = 200_000
MESSAGES = [
    {"role": "user", "content": "When does the ferry leave?"},
    {"role": "assistant", "content": "At noon."},
    {"role": "user", "content": "And back?"},
]


def check(template: str, special_tokens: Mapping[str, str], file: Path) -> None:
    """Raise CheckpointError for a template that does not render MESSAGES within the bounds. `file` is to blame."""
    request = json.dumps({"template": template, "special_tokens": special_tokens})
    # -P: a module in the current directory, which may be the checkpoint's, is no part of this.
    command = [sys.executable, "-P", "-m", __name__]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}  # each thread would take address space
    try:
        ended = subprocess.run(
            command, input=request, capture_output=True, text=True, timeout=WALL_S, env=environment, check=False
        )
        problem = _problem(ended)
    except subprocess.TimeoutExpired:
        problem = f"takes more than {WALL_S} s"
    if problem:
        raise CheckpointError(file, f"the chat template {problem}", "Mend the template, or take it out")


def _problem(ended: subprocess.CompletedProcess[str]) -> str | None:
    """What was wrong, by the end of the process that rendered."""
    if ended.returncode == 0:
        return None
    if ended.returncode < 0:
        return f"takes more than {CPU_S} s or too much memory"
    last_line = ended.stderr.strip().rpartition("\n")[2]
    return f"does not render a plain conversation ({last_line})"


def _render(request: str) -> None:
    """In the process of its own: render, or end it with whatever goes wrong as the last line of standard error."""
    from transformers.utils.chat_template_utils import render_jinja_template

    fields = json.loads(request)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    rendered: Any = render_jinja_template(  # a list of texts and one of indices, whatever its annotation says
        [MESSAGES], chat_template=fields["template"], add_generation_prompt=True, **fields["special_tokens"]
    )
    [text], _ = rendered
    if len(text) > OUTPUT_CHARS:
        sys.exit(f"{len(text)} characters come of {len(MESSAGES)} short messages")


if __name__ == "__main__":
    _render(sys.stdin.read())
