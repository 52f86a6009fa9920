"""The client that a backend imports: `jetway.v1.Inference`, blocking (`Client`) and for asyncio (`AsyncClient`).

    from jetway.client import Client, Overloaded

    with Client("localhost:8001") as client:
        print(client.generate("The capital of France is", max_tokens=8).text)
        for delta in client.stream(messages=[{"role": "user", "content": "Hello"}], temperature=0.7):
            print(delta.text, end="", flush=True)

Whoever stops reading a stream, or cancels a call, ends its request; no other request notices. Errors:

    JetwayError
    ├── InvalidArgument        the request is wrong as it stands; `param` names its field
    ├── Unauthenticated        there is no API key, or not one that is known there
    ├── PermissionDenied       the API key does not allow it
    ├── ModelNotFound          the model is not served there
    ├── Overloaded             a queue or limit is full                         retryable
    ├── Unavailable            starting, shutting down, unreachable             retryable
    ├── DeadlineExceeded       `timeout_s` or a limit of the server passed
    ├── Cancelled              the call was cancelled
    ├── EngineFailed           the engine failed on this request
    └── Internal               a fault of the server
"""

from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Self, Unpack

from jetway.v1 import inference_pb2, inference_pb2_grpc

from .client_channel import Tls, async_channel, channel
from .client_errors import (
    Cancelled,
    DeadlineExceeded,
    EngineFailed,
    Internal,
    InvalidArgument,
    JetwayError,
    ModelNotFound,
    Overloaded,
    PermissionDenied,
    Unauthenticated,
    Unavailable,
    translated_errors,
)
from .client_messages import (
    Choice,
    Completion,
    Delta,
    Model,
    Params,
    TokenLogprobs,
    Usage,
    build_request,
    call_metadata,
    parse_completion,
    parse_delta,
    parse_models,
)

__all__ = [
    "AsyncClient",
    "Cancelled",
    "Choice",
    "Client",
    "Completion",
    "DeadlineExceeded",
    "Delta",
    "EngineFailed",
    "Internal",
    "InvalidArgument",
    "JetwayError",
    "Model",
    "ModelNotFound",
    "Overloaded",
    "Params",
    "PermissionDenied",
    "Tls",
    "TokenLogprobs",
    "Unauthenticated",
    "Unavailable",
    "Usage",
]


class Client:
    """A connection to a gateway's gRPC address. Use it as a context manager, or `close` it; threads may share it."""

    def __init__(
        self, address: str, *, api_key: str | None = None, tenant: str | None = None, tls: Tls | None = None
    ) -> None:
        """`api_key` for a server that has keys; `tenant`, where it has none, is whom the calls are counted to. `tls`
        for a server that has a certificate; raises OSError for a file that cannot be read.
        """
        self._metadata = call_metadata(api_key, tenant)
        self._channel = channel(address, tls)
        self._stub = inference_pb2_grpc.InferenceStub(self._channel)

    def generate(self, prompt: str | None = None, **params: Unpack[Params]) -> Completion:
        """The whole answer. Raises a JetwayError."""
        request = build_request(prompt, params)
        with translated_errors():
            return parse_completion(
                self._stub.Generate(request, timeout=params.get("timeout_s"), metadata=self._metadata)
            )

    def stream(self, prompt: str | None = None, **params: Unpack[Params]) -> Iterator[Delta]:
        """The answer as it is generated; the call starts with the first `next`. Raises a JetwayError, also where one choice of several fails."""
        return self._deltas(build_request(prompt, params), params.get("timeout_s"))

    def models(self) -> list[Model]:
        """What is served. Raises a JetwayError."""
        with translated_errors():
            return parse_models(self._stub.ListModels(inference_pb2.ListModelsRequest(), metadata=self._metadata))

    def close(self) -> None:
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _deltas(self, request: inference_pb2.GenerateRequest, timeout_s: float | None) -> Iterator[Delta]:
        call = self._stub.GenerateStream(request, timeout=timeout_s, metadata=self._metadata)
        try:
            with translated_errors():
                for message in call:
                    yield parse_delta(message)
        finally:
            call.cancel()


class AsyncClient:
    """`Client` for asyncio: the same names; `generate`, `models` and `close` are awaited, `stream` is for `async for`."""

    def __init__(
        self, address: str, *, api_key: str | None = None, tenant: str | None = None, tls: Tls | None = None
    ) -> None:
        """As Client."""
        self._metadata = call_metadata(api_key, tenant)
        self._channel = async_channel(address, tls)
        self._stub = inference_pb2_grpc.InferenceStub(self._channel)

    async def generate(self, prompt: str | None = None, **params: Unpack[Params]) -> Completion:
        """The whole answer. Raises a JetwayError."""
        request = build_request(prompt, params)
        with translated_errors():
            return parse_completion(
                await self._stub.Generate(request, timeout=params.get("timeout_s"), metadata=self._metadata)
            )

    def stream(self, prompt: str | None = None, **params: Unpack[Params]) -> AsyncIterator[Delta]:
        """The answer as it is generated; the call starts with the first step. Raises a JetwayError, as `Client.stream`."""
        return self._deltas(build_request(prompt, params), params.get("timeout_s"))

    async def models(self) -> list[Model]:
        """What is served. Raises a JetwayError."""
        with translated_errors():
            return parse_models(await self._stub.ListModels(inference_pb2.ListModelsRequest(), metadata=self._metadata))

    async def close(self) -> None:
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def _deltas(self, request: inference_pb2.GenerateRequest, timeout_s: float | None) -> AsyncIterator[Delta]:
        call = self._stub.GenerateStream(request, timeout=timeout_s, metadata=self._metadata)
        try:
            with translated_errors():
                async for message in call:
                    yield parse_delta(message)
        finally:
            call.cancel()
