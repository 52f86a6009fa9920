"""Chat messages to the text that the model was trained on."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from jetway.runtime.errors import ConfigError, InvalidArgument
from jetway.runtime.gateway.words import cut


class ChatTemplate:
    """A checkpoint's Jinja template, in a sandbox, with the environment that transformers gives it.

    `special_tokens` are the texts of `bos_token` and the like, for those that the tokenizer has. Raises ConfigError
    where the template does not parse.
    """

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise ConfigError(f"the chat template does not parse: line {error.lineno}: {error.message}") from error
        self._special_tokens = special_tokens

    def render(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The prompt, up to where the assistant's answer begins. Raises InvalidArgument where the template refuses."""
        try:
            return self._template.render(
                messages=[dict(message) for message in messages],
                tools=None,
                documents=None,
                add_generation_prompt=True,
                **self._special_tokens,
            )
        except Exception as error:  # a template is foreign code: whatever it raises is about these messages
            raise InvalidArgument(
                f"the model's chat template refuses these messages: {cut(str(error) or type(error).__name__)}",
                param="messages",
            ) from error


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


class _Generation(jinja2.ext.Extension):
    """`{% generation %}` marks the assistant's words for training; to a prompt it adds nothing."""

    tags = {"generation"}  # noqa: RUF012  Jinja declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _tojson(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    """Unlike Jinja's own, it does not escape HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)
