"""The model that `jetway triton-repo` writes: hands each request to a Jetway gateway and streams its answer back.

With the modules beside it, it is copied into a model repository, and runs inside Triton: over HTTP on the standard library
and numpy (below 2), over gRPC where tritonclient is there too.
"""

import json
import logging
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import triton_python_backend_utils as pb_utils

from .exchange import Asked, Exchange, Failed, Said, Transport
from .over_http import HttpTransport, Output

log = logging.getLogger(__name__)

CANCEL_CHECK_S = 0.05  # how often it is asked whether a client has gone
SERVER_CHECK_S = 0.5  # and whether the server has
API_KEY_VARIABLE = "JETWAY_API_KEY"
_API_KEY = re.compile(r"[\x21-\x7e]+")  # what a header carries as it is, and metadata too
PRIORITY, TIMEOUT = "jetway_priority", "jetway_timeout"  # parameters of a request: Triton shows no others to a model


class TritonPythonModel:
    """Decoupled. At most `max_requests` run; then `execute` waits, and Triton queues."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Raises TritonModelException, which Triton tells whoever loads the model."""
        config = json.loads(args["model_config"])
        settings = {name: each["string_value"] for name, each in config["parameters"].items()}
        self._name = args["model_name"]
        self._transport = _transport(settings["jetway_url"], config)
        self._max_requests = int(settings["max_requests"])
        self._slots = threading.Semaphore(self._max_requests)
        self._cancellations = _Cancellations()
        threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()

    def execute(self, requests: Sequence[Any]) -> None:
        for request in requests:
            self._slots.acquire()
            sender = request.get_response_sender()
            try:
                exchange = Exchange(self._transport.connection(self._asked(request)))
                threading.Thread(target=self._run, args=(sender, exchange), daemon=True).start()
            except Exception as error:  # noqa: BLE001  # told to the client
                _fail(sender, error)
                self._slots.release()

    def finalize(self) -> None:
        """Triton has let the requests end; what still runs is cancelled."""
        self._cancellations.close()
        for _ in range(self._max_requests):
            self._slots.acquire()

    def _asked(self, request: Any) -> Asked:
        """Raises Failed for what Triton takes of a client in JSON though it is no text."""
        try:
            request_id, given = request.request_id(), json.loads(request.parameters() or "{}")
        except UnicodeDecodeError as error:
            message = f"the id and the parameters of a request must be UTF-8, not {error.object!r:.200}"
            raise Failed(message, "INVALID_ARG") from error
        parameters = {name: given[name] for name in (PRIORITY, TIMEOUT) if name in given}
        if request.timeout() > 0:
            parameters.setdefault(TIMEOUT, request.timeout())
        inputs = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        return Asked(self._name, request_id, inputs, parameters)

    def _run(self, sender: Any, exchange: Exchange) -> None:
        try:
            with self._cancellations.watching(sender, exchange):
                last = _stream(sender, exchange.responses())
            sender.send(last, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        except Exception as error:  # noqa: BLE001  # told to the client
            _fail(sender, error)
        finally:
            exchange.close()  # after the last response, which need not wait for it
            self._slots.release()


def _transport(url: str, config: Mapping[str, Any]) -> Transport:
    """As the URL's scheme says. Raises TritonModelException where it cannot be had."""
    parts, authorization = urlsplit(url), _authorization()
    if parts.scheme not in ("grpc", "grpcs"):
        outputs = {each["name"]: _output(each, config["max_batch_size"]) for each in config["output"]}
        return HttpTransport(parts, authorization, outputs)
    try:
        from .over_grpc import GrpcTransport  # late: over HTTP a model needs none of what this imports
    except (ImportError, RuntimeError) as error:  # tritonclient raises RuntimeError where a part of it is missing
        raise pb_utils.TritonModelException(
            f"{url} needs tritonclient[grpc] in the environment of Triton's Python backend: {error}"
        ) from error
    return GrpcTransport(parts, authorization)


def _authorization() -> dict[str, str]:
    """The header, or metadata, that carries the API key, where there is one. Raises TritonModelException, without the key."""
    key = os.environ.get(API_KEY_VARIABLE)
    if not key:
        return {}
    if not _API_KEY.fullmatch(key):
        raise pb_utils.TritonModelException(
            f"{API_KEY_VARIABLE} must have visible ASCII characters only, no space or line end among them"
        )
    return {"authorization": f"Bearer {key}"}


def _output(config: Mapping[str, Any], max_batch_size: int) -> Output:
    dtype = pb_utils.triton_string_to_numpy(config["data_type"])
    return Output(dtype, num_leading=len(config["dims"]) - (0 if max_batch_size else 1))


def _stream(sender: Any, responses: Iterator[Said]) -> Any:
    """All but the last response, which is returned: as in upstream's C++ backend, it is final itself."""
    last = None
    for said in responses:
        response = pb_utils.InferenceResponse([pb_utils.Tensor(name, array) for name, array in said.outputs.items()])
        if said.final:
            last = response
        else:
            sender.send(response)
    if last is None:
        raise Failed("Jetway's answer has no end", "INTERNAL")
    return last


class _Watched:
    """A request whose client may go. Triton frees what `is_cancelled` asks with the last response, and ends as a whole when
    it is asked later: so asking and ending exclude each other.
    """

    def __init__(self, sender: Any, exchange: Exchange) -> None:
        self.exchange = exchange
        self._sender = sender
        self._ended = False
        self._asking = threading.Lock()

    def check(self) -> None:
        with self._asking:
            if not self._ended and self._sender.is_cancelled():
                self.exchange.cancel()

    def end(self) -> None:
        """Before the last response."""
        with self._asking:
            self._ended = True


class _Cancellations:
    """Asks Triton, for all running requests in one thread, whether their clients have gone."""

    def __init__(self) -> None:
        self._watched: set[_Watched] = set()
        self._changed = threading.Condition()
        self._closed = False
        threading.Thread(target=self._check, daemon=True).start()

    @contextmanager
    def watching(self, sender: Any, exchange: Exchange) -> Iterator[None]:
        """The exchange is cancelled once the sender's client has gone. Left before the last response."""
        watched = _Watched(sender, exchange)
        with self._changed:
            self._watched.add(watched)
            self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._watched.remove(watched)
            watched.end()

    def close(self) -> None:
        """Cancel what still runs."""
        with self._changed:
            self._closed = True
            self._changed.notify()
            running = list(self._watched)
        for watched in running:
            watched.exchange.cancel()

    def _check(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._watched or self._closed)
                if self._closed:
                    return
                running = list(self._watched)
            for watched in running:
                watched.check()
            time.sleep(CANCEL_CHECK_S)


def _end_with(server: int) -> None:
    """End the process once its parent has, the server. Triton's code waits for ever for the answers of one that was killed,
    and the requests would run on in Jetway. (While it waits at the end of `execute` no Python runs, nor does this.)
    """
    while os.getppid() == server:
        time.sleep(SERVER_CHECK_S)
    os._exit(1)


def _fail(sender: Any, error: Exception) -> None:
    """End the request: whatever the error is, Triton waits for an end."""
    if not isinstance(error, Failed):
        log.error("a fault of Jetway's model", exc_info=error)
        error = Failed(f"a fault of Jetway's model: {type(error).__name__}: {error}", "INTERNAL")
    code = getattr(pb_utils.TritonError, error.code)
    response = pb_utils.InferenceResponse(error=pb_utils.TritonError(error.message, code))
    sender.send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
