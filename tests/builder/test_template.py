"""A chat template is tried in a sandbox, with bounds."""

from pathlib import Path

import pytest

from jetway.builder import template
from jetway.builder.errors import CheckpointError
from tests.support.checkpoints import CHAT_TEMPLATE

FILE = Path("model/chat_template.jinja")
TOKENS = {"bos_token": "<s>"}


def refusal(source: str) -> str:
    with pytest.raises(CheckpointError) as refused:
        template.check(source, TOKENS, FILE)
    return str(refused.value)


def test_a_plain_template_passes() -> None:
    template.check(CHAT_TEMPLATE, TOKENS, FILE)


def test_what_transformers_gives_a_template_is_there() -> None:
    source = (
        "{{ bos_token }}{{ strftime_now('%Y') }}{% generation %}{{ messages | tojson }}{% endgeneration %}"
        "{% if tools or documents %}{{ raise_exception('not there') }}{% endif %}"
        "{% for message in messages %}{% if loop.last %}{% break %}{% endif %}{% endfor %}"
        "{% if not add_generation_prompt %}{{ raise_exception('no prompt') }}{% endif %}"
    )
    template.check(source, TOKENS, FILE)


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("{% for message in messages %}", "jinja2.exceptions.TemplateSyntaxError: Unexpected end of template."),
        ("{{ raise_exception('only tools') }}", "jinja2.exceptions.TemplateError: only tools"),
        (
            "{{ cycler.__init__.__globals__.os.system('true') }}",
            "jinja2.exceptions.SecurityError: access to attribute '__init__' of 'type' object is unsafe.",
        ),
        ("{% for i in range(10**9) %}{% endfor %}", "OverflowError: Range too big."),
        ("{{ 'a' * 10**10 }}", "MemoryError"),
        ("{{ 'a' * 10**6 }}", "1000000 characters come of 3 short messages"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError: maximum recursion depth exceeded"),
    ],
)
def test_refused(source: str, error: str) -> None:
    message = refusal(source)
    assert message.startswith(f"{FILE}: the chat template does not render a plain conversation ({error}")
    assert message.endswith("). Mend the template, or take it out.")


def test_an_endless_template_is_ended() -> None:
    """Nested ranges, each within the sandbox's bound."""
    loop = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    assert refusal(loop) == (
        f"{FILE}: the chat template takes more than 3 s or too much memory. Mend the template, or take it out."
    )


def test_a_template_that_sleeps_would_be_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the clock on the wall, which here leaves no time to start."""
    monkeypatch.setattr(template, "WALL_S", 0.01)
    assert refusal(CHAT_TEMPLATE) == (
        f"{FILE}: the chat template takes more than 0.01 s. Mend the template, or take it out."
    )
