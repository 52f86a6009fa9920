"""docs/errors.md, from the table of errors."""

from jetway.runtime.errors import EDGES, Edge, JetwayError

INTRODUCTION = """\
<!-- Made by scripts/docs from runtime/errors.py. -->
# Errors

What a request can be refused or failed with: one tree (`runtime/errors.py`), translated at the edges only.

A request that is refused ends with the status below before anything was generated, and so does one that fails and is
not streamed. A stream that fails after it was accepted ends with the same error as a message.

| error | gRPC | OpenAI API | type | KServe gRPC | KServe HTTP | try again | when |
|---|---|---|---|---|---|---|---|
"""

PROTOCOLS = """\

**gRPC.** The whole `jetway.v1.Error`, with the field that is to blame, stands in the trailing metadata
`jetway-error-bin` of a status that is not OK. In `GenerateStream`, a choice that fails ends with a delta that holds
it; the others go on.

**OpenAI API.** The body is `{"error": {"message", "type", "param", "code"}}`; the code is the error's name in lower
case. A stream ends with one event of just that, then `data: [DONE]`, never without the latter: it is what the official
clients raise as an `APIError`. Where trying again cannot help, the header `x-should-retry: false` keeps them from it.
A path that does not exist is 404, a method that it does not take 405, a body that is too large 413.

**Overload.** `Retry-After`, or `retry_after_s` of the gRPC error, is when a full queue may have room: computed from what is
queued and runs, and the rate at which it is served; whole seconds from 1 to 60, and 1 while no rate is known.
"""


def page() -> str:
    return INTRODUCTION + "".join(_row(cls, edge) for cls, edge in EDGES.items()) + PROTOCOLS


def _row(cls: type[JetwayError], edge: Edge) -> str:
    again = "yes" if edge.retryable else "no"
    when = (cls.__doc__ or "").rstrip(".")
    cells = (
        edge.code, edge.grpc, edge.http, edge.openai_type, edge.kserve_grpc, edge.kserve_http, again,
        when[0].lower() + when[1:],
    )  # fmt: skip
    return f"| {' | '.join(str(cell) for cell in cells)} |\n"
