"""docs/kserve.md, from the signatures of the dialects."""

from collections.abc import Iterable, Iterator, Sequence

from jetway.runtime.gateway.kserve.dialects.llmapi import LlmapiDialect
from jetway.runtime.gateway.kserve.dialects.text import TextDialect
from jetway.runtime.gateway.kserve.dialects.tokens import TokensDialect
from jetway.runtime.gateway.kserve.signature import InputSpec, TensorSpec

_Dialect = type[TextDialect] | type[TokensDialect] | type[LlmapiDialect]

INTRODUCTION = """\
<!-- Made by scripts/docs from runtime/gateway/kserve/. -->
# KServe v2 and Triton's clients

The gateway answers as a Triton server with tensorrtllm_backend's models would: `inference.GRPCInferenceService` on
`grpc_port`, and `/v2` on `port`. A client of that server changes the address.

| model | speaks |
|---|---|
| the served name, `ensemble`, `tensorrt_llm_bls` | text; a delta in each response of a stream |
| `tensorrt_llm` with `kserve_dialect: inflight` | token ids; new ones in each response of a stream |
| `tensorrt_llm` with `kserve_dialect: llmapi` | text; in each response of a stream all of it so far |

The gRPC half needs tritonclient's protobuf types: `pip install 'jetway-llm[gateway,triton]'`. Without them the log says
so, and HTTP is served.

Over gRPC: health, metadata, configuration, statistics, repository index, `ModelInfer`, `ModelStreamInfer`. Over HTTP the
same, `infer` with raw tensors (the binary tensor extension) and gzip or deflate, `generate` and `generate_stream`. Not
served, and no extension: shared memory, trace, logging, loading of models.

Only what asks for nothing is taken of the tensors below that say so; other values are refused by name.
"""

NOTES = """\
## What is as upstream, and may surprise

* Without `top_k` and `top_p` an answer is greedy, whatever the temperature (`llmapi`: without any of the three).
* A whole answer begins with its prompt unless `exclude_input_in_output` (`sampling_param_exclude_input_from_output`) is
  true. A streamed one never holds it.
* `end_id` is the one token that ends an answer, and -1 means none; without it the model's own end tokens do.
* `pad_id` and the length penalties are taken and change nothing: nothing is padded, and there are no beams.
* `/generate` with `stream: true`, or with several sequences, is an error with status 200; `ModelInfer` and `/infer`
  answer UNIMPLEMENTED, 501. Use `ModelStreamInfer` or `/generate_stream`.
* `/generate` and `/generate_stream` take no `priority` and no `timeout`: keys that are no tensors are parameters without
  a meaning, but for `jetway_priority`, `jetway_timeout`, and `jetway_final_response`: where it is true each event says
  under the same name whether it is the last, and an error under `jetway_error_code` which it is, as gRPC names it. The
  header `X-Jetway-Class` works everywhere.
* An id is `request_id` of gRPC and `"id"` of a JSON body, never a header.

## What is not

* A unary HTTP request whose client disconnects is cancelled.
* While nothing is generated `/generate_stream` sends a comment (`: keep-alive`) every 10 to 20 s, before its first event
  with status 200: an error after that is an event.
* Every stream ends with `triton_final_response` true: on the last data, or in a response without outputs where
  `triton_enable_empty_final_response` asks for one.
* Shapes may have the batch dimension or not; it is 1.
* JSON values of another type than their tensor's are status 400, not 500.
* Error frames of a stream carry `id` and model name also where the request could not be read.

## Requests

**Streams.** Requests share one `ModelStreamInfer`. An error ends its own request, with `error_message` and the id; with
the metadata `triton_grpc_error: true` it ends the stream with a status. Closing the stream cancels what runs on it, and a
client that reads nothing for `stall_limit_s` loses it.

**Stop.** A request to `tensorrt_llm` with `stop` true ends those with the same id and tenant on this gateway, whatever
model runs them. They end with what they have.

**Ends.** Token ids hold the end token or the stop word that ended them, and `num_output_tokens` counts it; text ends before.

**Priority.** A level: 1 is the best, 0 the default, one that is no level here becomes the default in silence
(`jetway_remapped_priorities_total` counts them). Levels are those of the service classes, as the configuration of each
model says. The class may be named instead (`X-Jetway-Class`, in gRPC `x-jetway-class`); one of another level is refused.

**Timeout.** Microseconds of waiting for the start, where that is shorter than the class's `queue_timeout_s`. It ends as
UNAVAILABLE, 503, "Request timeout expired". A full queue is UNAVAILABLE, 503, "Exceeds maximum queue size", over HTTP
with `Retry-After`.

**Callers.** As for the other protocols: `Authorization: Bearer KEY` where the server has keys, in gRPC as metadata.
Health is open.

**Size.** A request may have `max_request_bytes`, over gRPC too: there it is the size of the message, and a larger one ends
its call as RESOURCE_EXHAUSTED, a stream with all that runs on it.

**Statistics.** As Triton's, of each model: `success` and `fail` from the request to the last of its answer, sent. Of
what succeeded also `compute_input`, until the scheduler is asked (the request is read and tokenized), `queue`, from then
to the first start, and `compute_infer`, from the start to the end, waits for displaced sequences included. These three
count requests of which the scheduler has said it. `compute_output` stays 0, since an answer is written while it is computed;
there are no caches and batches of Triton's kind, so what would count them is 0 or absent too.

## Behind Triton

`jetway triton-repo --output DIR --url URL` writes a model repository for a Triton server with the Python backend and numpy
below 2: `ensemble`, `tensorrt_llm_bls` and `tensorrt_llm` hand their requests to the gateway at URL and stream the answers
back. They are decoupled: use `ModelStreamInfer`, `/generate_stream`, or `/generate` for a whole answer. The last data are
final there too. A client that leaves cancels its request in Jetway, unless it waits for `/generate`: Triton does not see
it leave, and the answer is generated to its end.

| URL | what carries requests | the environment of Triton's Python backend needs |
|---|---|---|
| `http://HOST:PORT` of `port`; `https`, and with a path, behind a proxy | `/generate_stream` | numpy |
| `grpc://HOST:PORT` of `grpc_port`; `grpcs` for TLS | `ModelStreamInfer` | numpy and `tritonclient[grpc]` |

Clients see the same of both. Every error of Jetway's is a 400 of Triton's `/generate` and `/generate_stream`, that of a full
queue too, without `Retry-After`. A model that lacks what its URL needs does not load, and says so. Over TLS the certificate is checked against the machine's authorities
(`SSL_CERT_FILE`), by gRPC against its own (`GRPC_DEFAULT_SSL_ROOTS_FILE_PATH`); a gateway with `tls_client_ca` lets none of
them in.

Triton shows a model no priority, so it goes as the parameter `jetway_priority`, a level, and `jetway_timeout`, in
microseconds, beside Triton's own timeout; both work the same at the gateway itself, also in `/generate`. `JETWAY_API_KEY`
in Triton's environment, read when a model loads, is the key that is sent for whoever reaches Triton: headers and metadata
of its clients, `Authorization` and `X-Jetway-Class` among them, do not get through.

Every request has a connection of its own: while Jetway is down requests end as UNAVAILABLE, what was running too; once it is
back they are served, without a restart of Triton. A gateway that is stopped, or whose host is lost, is one that is down
after 30 s, however long its requests may wait: it answers pings of gRPC, and sends the comments of `/generate_stream`, which
a proxy between has to pass on as they come. An executor that is lost is not seen at all.

**A Triton server by hand.** NVIDIA's containers have `tritonserver` and the Python backend: `pip install 'numpy<2'
'tritonclient[grpc]'` there, and start it with `--model-repository=DIR`. Without a container or a GPU the wheel of
nvidia-pytriton has Triton 2.51; it needs an environment of its own, whose numpy is below 2:

```sh
jetway triton-repo --output triton-models --url grpc://127.0.0.1:8001
python3.11 -m venv triton
triton/bin/pip install nvidia-pytriton==0.7.0     # 55 MB, and its packages: 0.4 GB on disk; tritonclient is among them
server=$PWD/triton/lib/python3.11/site-packages/pytriton/tritonserver
mkdir -p backends/python
ln -sfn $server/backends/python/* $server/python_backend_stubs/3.11/* backends/python/
export PATH=$PWD/triton/bin:$PATH    # the backend runs the Python that it finds first
export LD_LIBRARY_PATH=$(python -c 'import sysconfig; print(sysconfig.get_config_var("LIBDIR"))')
env -u PYTHONPATH $server/bin/tritonserver --model-repository=triton-models --backend-directory=backends \\
  --http-address=127.0.0.1 --http-port=9000 --grpc-address=127.0.0.1 --grpc-port=9001 \\
  --allow-metrics=false --pinned-memory-pool-byte-size=0
```

Links, not copies: the backend finds its libraries beside where it really lies. Without `PYTHONPATH`: a project's, this
one's among them, goes before the environment's own packages, in the backend too. With numpy 2 the models load, and die of
their first text. Without the two addresses Triton listens on all of the machine's. `GET /v2/health/ready` answers 200 once
it is up, whether Jetway is or not, and SIGTERM stops it.
"""


def page() -> str:
    return "\n".join(
        [
            INTRODUCTION,
            *_dialect("`ensemble`, `tensorrt_llm_bls` and the served name", TextDialect),
            *_dialect("`tensorrt_llm`, inflight", TokensDialect),
            *_dialect("`tensorrt_llm`, llmapi", LlmapiDialect),
            NOTES,
        ]
    )


def _dialect(title: str, dialect: _Dialect) -> Iterator[str]:
    yield f"## {title}\n"
    yield from _table(dialect.inputs, batched=dialect.batched)
    yield f"\nOutputs: {_listed(dialect.outputs)}.\n"


def _table(specs: Sequence[InputSpec], *, batched: bool) -> Iterator[str]:
    yield "| tensor | type | shape | |"
    yield "|---|---|---|---|"
    for spec in specs:
        shape = [1, *spec.dims] if batched else list(spec.dims)
        yield f"| `{spec.name}` | {spec.datatype} | {shape} | {_remark(spec)} |"


def _remark(spec: InputSpec) -> str:
    if spec.neutral is None:
        return "required" if spec.required else ""
    if not spec.neutral:
        return "only empty"
    return "only " + " or ".join(_shown(value) for value in spec.neutral)


def _shown(value: object) -> str:
    return "empty text" if value == b"" else str(value).lower()


def _listed(specs: Iterable[TensorSpec]) -> str:
    return ", ".join(f"`{spec.name}`" for spec in specs)
