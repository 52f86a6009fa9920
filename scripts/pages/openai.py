"""docs/openai.md, from the bodies that the parser reads and the tables of what it does not."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from jetway.runtime.gateway.openai.openapi import document
from jetway.runtime.gateway.openai.requests import CallBody, ChatBody, CompletionBody
from jetway.runtime.gateway.openai.unsupported import IGNORED, REFUSED

INTRODUCTION = """\
<!-- Made by scripts/docs from runtime/gateway/openai/. -->
# The OpenAI API

`POST /v1/chat/completions`, `POST /v1/completions`, `GET /v1/models`, `GET /v1/models/{id}`; beside them `GET /health`, `GET /health/ready`,
`GET /metrics` and `GET /openapi.json`, which describes them all ([openapi.json](openapi.json)). Errors:
[errors.md](errors.md).

Every field of a request is honoured, refused by name, or ignored, as the tables below say. A value is never converted
and never clamped: one of the wrong type, or out of range, is refused with its field and the limit. `null` is like
absent.
"""

NOTES = """\
## What the answers mean

**Choices.** `n` choices of each prompt, numbered prompt by prompt: with two prompts and `n` 2, the second prompt has
the choices 2 and 3. In a stream they come as they come, each with its `index`. A call is accepted or refused as a
whole.

**Usage.** Each prompt counts once, whatever `n` is. `completion_tokens` counts every token of every choice, the one
that ended it included: an end token, a stop token, or the token that completed a stop string. What was generated
beyond that is not counted. `prompt_tokens_details.cached_tokens` is the part of the prompts whose KV was found in the
prefix cache.

**Log-probabilities.** One entry for each token that counts, also for those without text, and in a stream in the same
chunk as its token. Text can come later than its entry, because a possible stop string is held back; all chunks
together hold what the whole answer holds. `bytes` are the token's own, also where it is part of a character only; its
`token` is then written as `bytes:\\xf0\\x9f`. The values are natural logarithms after penalties and bias and before
temperature and truncation; -9999 stands for minus infinity. In `/v1/completions`, `top_logprobs` holds the token
itself too, alternatives of equal text share a key, and `text_offset` counts characters of the text with the stop string.

**Text.** A completion continues the text of its prompt, with the space before its first word; a chat's answer begins
without. A prompt that already begins with the model's BOS token gets no second one.

**Streams.** The status is sent once the call is accepted; before that, errors have a status of their own. While
nothing is generated a comment (`: keep-alive`) is sent every 10 to 20 s. The last event is `data: [DONE]`, always.
A client that disconnects ends its call; so does one that reads nothing for `stall_limit_s`.

**Classes.** What a call runs as: the header `X-Jetway-Class`, else `priority`, else `service_tier`, else the default of
the API key, else `standard`. Two that disagree are refused. `priority` is vLLM's integer (below 0 `interactive`, 0
`standard`, above 0 `batch`) unless `priority_dialect: trtllm` makes it TensorRT-LLM's (above 0.5, 0.5, below 0.5); it also
orders the tenant's own requests of the class, and beside the header of a class of your own it does only that. The
middle one, 0 or 0.5, which clients send unasked, disagrees with nothing: it means `standard` where nothing else is said and
the key may use it, else the key's default. `service_tier`: `priority` and `fast` mean `interactive`,
`default` and `scale` `standard`, `flex` `batch`, and `auto` is no opinion, as if it was left out; a request that names
one is told in its answer which was used. A class that the key may not use is refused with 403, but a `service_tier`
falls to the key's best class.

**Callers.** Where the server has keys, everything under /v1 needs `Authorization: Bearer KEY`, and the key says whom a
call is counted to. Where it has none, the header `X-Jetway-Tenant` says so.

**Deadlines.** `X-Jetway-Deadline-Ms: 1500` ends a call that takes longer, with status 504. Without it, the class's
`default_deadline_s` does. The gateway sees to both, a second later, where the scheduler does not.

**Request ids.** `x-request-id` of the request, if it is plain ASCII of at most 128 characters, comes back in the
answer, is part of the answer's `id` and stands in the logs; without one, it is drawn.
"""


Schema = dict[str, Any]
_UNBOUNDED = 2**31 - 1


def page() -> str:
    schemas = document()["components"]["schemas"]
    shared = list(CallBody.model_fields)
    parts = [INTRODUCTION, _honoured("Both endpoints", schemas, "ChatBody", shared)]
    for path, body in (("/v1/chat/completions", ChatBody), ("/v1/completions", CompletionBody)):
        own = [name for name in body.model_fields if name not in shared]
        parts.append(_honoured(f"`{path}`", schemas, body.__name__, own))
    return "\n".join([*parts, _refused(), _ignored(), NOTES])


def _honoured(title: str, schemas: Schema, body: str, names: Iterable[str]) -> str:
    lines = [f"## {title}", "", "| field | takes | |", "|---|---|---|"]
    for name in names:
        lines += _rows(schemas, name, schemas[body]["properties"][name])
    return "\n".join([*lines, ""])


def _rows(schemas: Schema, path: str, field: Schema) -> Iterator[str]:
    """A row for the field, and one for each field of an object in it."""
    yield f"| `{path}` | {_takes(field)} | {field['description']} |"
    for nested in _objects(field):
        for name, inner in schemas[nested]["properties"].items():
            if "description" in inner:
                yield from _rows(schemas, f"{path}{'[]' if 'items' in field else ''}.{name}", inner)


def _objects(field: Schema) -> list[str]:
    """Names of the objects that the field is, or is a list of."""
    inner = [field, field.get("items", {}), *field.get("anyOf", [])]
    return [each["$ref"].rpartition("/")[2] for each in inner if "$ref" in each]


def _takes(schema: Schema) -> str:
    """The values that a schema allows, in words; null apart."""
    kinds = [each for each in (schema.get("anyOf") or schema.get("oneOf") or []) if each.get("type") != "null"]
    if kinds:
        return ", or ".join(_takes(each) for each in kinds)
    match schema:
        case {"enum": list(values)}:
            return ", ".join(f"`{value}`" for value in values)
        case {"type": "array", "items": items}:
            most = f"at most {schema['maxItems']} " if "maxItems" in schema else ""
            return f"list of {most}{_plural(items)}"
        case {"patternProperties": properties, "maxProperties": most}:
            [value] = properties.values()
            return f"object of at most {most} values, each a {_takes(value)}"
        case {"type": "integer" | "number" as name, "maximum": high}:
            low = schema["minimum"] if "minimum" in schema else f"above {schema['exclusiveMinimum']}"
            return f"{name}, {low} or more" if high >= _UNBOUNDED else f"{name}, {low} to {high}"
        case {"type": "string", "maxLength": most}:
            return f"string of 1 to {most} characters"
    return str(schema.get("type", "object"))


def _plural(schema: Schema) -> str:
    if "items" in schema:
        return f"lists of {_plural(schema['items'])}"
    return f"{schema.get('type', 'object')}s"


def _refused() -> str:
    lines = [
        "## Refused, unless they ask for nothing\n",
        "These would change the answer, and nothing here honours them: status 400 names the field and the value.\n",
        "| field | values that ask for nothing |",
        "|---|---|",
    ]
    for name, neutral in REFUSED.items():
        lines.append(f"| `{name}` | {', '.join(f'`{json.dumps(value)}`' for value in [*neutral, None])} |")
    return "\n".join(
        [*lines, "\nMessages with tool calls, of other roles, and with parts other than text are refused too.\n"]
    )


def _ignored() -> str:
    lines = [
        "## Ignored\n",
        "These change no answer, and so does every field that no table names.\n",
        "| field | because |",
        "|---|---|",
    ]
    return "\n".join([*lines, *(f"| `{name}` | {reason} |" for name, reason in IGNORED.items()), ""])
