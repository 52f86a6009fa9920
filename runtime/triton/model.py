"""The model that `jetway triton-repo` writes: hands each request to a Jetway gateway and streams its answer back.

With exchange.py it is copied into a model repository, and runs inside Triton on the standard library and numpy (below 2).
Every request has a connection of its own, so Jetway may be restarted under it.
"""

import json
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import triton_python_backend_utils as pb_utils

from .exchange import Exchange, Failed

log = logging.getLogger(__name__)

CANCEL_CHECK_S = 0.05  # how often it is asked whether a client has gone
PRIORITY, TIMEOUT = "jetway_priority", "jetway_timeout"  # parameters of a request: Triton shows no others to a model
FINAL_RESPONSE = "jetway_final_response"  # another: each event says whether it is the last


class TritonPythonModel:
    """Decoupled. At most `max_requests` run; then `execute` waits, and Triton queues."""

    def initialize(self, args: Mapping[str, str]) -> None:
        config = json.loads(args["model_config"])
        settings = {name: each["string_value"] for name, each in config["parameters"].items()}
        self._url = urlsplit(settings["jetway_url"])
        self._path = f"{self._url.path.rstrip('/')}/v2/models/{args['model_name']}/generate_stream"
        self._outputs = {each["name"]: _Output(each, batched=config["max_batch_size"] > 0) for each in config["output"]}
        self._max_requests = int(settings["max_requests"])
        self._slots = threading.Semaphore(self._max_requests)
        self._cancellations = _Cancellations()

    def execute(self, requests: Sequence[Any]) -> None:
        for request in requests:
            self._slots.acquire()
            sender = request.get_response_sender()
            try:
                body = _body(request)
            except UnicodeDecodeError as error:
                _fail(sender, Failed(f"an input is not UTF-8: {error.reason}", "INVALID_ARG"))
                self._slots.release()
                continue
            threading.Thread(target=self._run, args=(sender, body), daemon=True).start()

    def finalize(self) -> None:
        """Triton has let the requests end; what still runs is cancelled."""
        self._cancellations.close()
        for _ in range(self._max_requests):
            self._slots.acquire()

    def _run(self, sender: Any, body: bytes) -> None:
        try:
            exchange = Exchange(self._url.scheme, self._url.netloc)
            with self._cancellations.watching(sender, exchange):
                last = self._stream(sender, exchange.events(self._path, body))
            sender.send(last, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        except Failed as error:
            _fail(sender, error)
        except Exception as error:  # whatever it is, Triton waits for an end
            log.exception("a fault of Jetway's model")
            _fail(sender, Failed(f"a fault of Jetway's model: {type(error).__name__}: {error}", "INTERNAL"))
        finally:
            self._slots.release()

    def _stream(self, sender: Any, events: Iterator[Mapping[str, Any]]) -> Any:
        """All but the last response, which is returned: as in upstream's C++ backend, it is final itself."""
        last = None
        for event in events:
            response = pb_utils.InferenceResponse(self._tensors(event))
            if event.get(FINAL_RESPONSE):
                last = response
            else:
                sender.send(response)
        if last is None:
            raise Failed("Jetway's answer has no end", "INTERNAL")
        return last

    def _tensors(self, event: Mapping[str, Any]) -> list[Any]:
        return [self._outputs[name].tensor(value) for name, value in event.items() if name in self._outputs]


class _Output:
    """One output as the configuration has it."""

    def __init__(self, config: Mapping[str, Any], *, batched: bool) -> None:
        self._name = config["name"]
        self._dtype = pb_utils.triton_string_to_numpy(config["data_type"])
        self._leading = len(config["dims"]) - (0 if batched else 1)  # dimensions of 1 before the last

    def tensor(self, value: Any) -> Any:
        """Clients of upstream index text once, and everything else as the configuration says."""
        values = value if isinstance(value, list) else [value]
        if self._dtype is np.object_:
            array = np.array([each.encode() for each in values], dtype=np.object_)
        else:
            array = np.array(values, self._dtype).reshape([1] * self._leading + [len(values)])
        return pb_utils.Tensor(self._name, array)


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
            threading.Event().wait(CANCEL_CHECK_S)


def _body(request: Any) -> bytes:
    """The request as /generate_stream takes it: a key for each tensor, its elements in a list."""
    given = json.loads(request.parameters() or "{}")
    parameters = {name: given[name] for name in (PRIORITY, TIMEOUT) if name in given} | {FINAL_RESPONSE: True}
    if request.timeout() > 0:
        parameters.setdefault(TIMEOUT, request.timeout())
    body = {tensor.name(): _elements(tensor) for tensor in request.inputs()}
    return json.dumps(body | {"id": request.request_id(), "parameters": parameters}).encode()


def _elements(tensor: Any) -> list[Any]:
    values = tensor.as_numpy().reshape(-1).tolist()
    return [each.decode() if isinstance(each, bytes) else each for each in values]


def _fail(sender: Any, error: Failed) -> None:
    code = getattr(pb_utils.TritonError, error.code)
    response = pb_utils.InferenceResponse(error=pb_utils.TritonError(error.message, code))
    sender.send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
