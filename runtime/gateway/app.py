"""A gateway: one session with the scheduler, two servers in front of it."""

import asyncio
from contextlib import AsyncExitStack, closing
from pathlib import Path

from starlette.routing import Route

from jetway.builder import manifest
from jetway.runtime.config import GatewayConfig
from jetway.runtime.errors import ConfigError
from jetway.runtime.listeners import leave

from .access import OPEN_ACCESS, Access
from .admin import AdminServicer
from .descriptors import allow_descriptors
from .generate import Generator
from .grpc import InferenceServicer
from .kserve.catalog import Catalog
from .kserve.edge import Edge, grpc_service
from .kserve.http import kserve_app
from .kserve.inference import Inference
from .limits import CallLimits
from .metrics.exposition import Exposition
from .metrics.instruments import Metrics
from .openai.routes import openai_app
from .servers import GrpcServer, HttpServer
from .session import SchedulerSession
from .surroundings import Surroundings
from .text.codec import TextCodec
from .tls import load_tls

_NUM_OTHER_DESCRIPTORS = 256  # than those of clients
_LAST_WORDS_S = 1.0  # after the drain, for the errors that end what is left


class Gateway:
    """Serves the model of `engine_dir` as `model_name` (None: the engine's own name), by the scheduler that is around.

    It starts without the scheduler too: it is live then, and not ready, and calls are refused as Unavailable.
    `access` says who may call, and which classes there are.
    """

    def __init__(
        self,
        config: GatewayConfig,
        engine_dir: Path,
        model_name: str | None,
        surroundings: Surroundings,
        access: Access = OPEN_ACCESS,
    ) -> None:
        """Raises ConfigError for an engine directory, or a certificate, that cannot be served."""
        tls = load_tls(config)
        self._config = config
        self._surroundings = surroundings
        try:
            engine = manifest.read(engine_dir)
        except manifest.ManifestError as error:
            raise ConfigError(str(error)) from error
        self._session = SchedulerSession(surroundings.scheduler_address, config.recovery_limit_s)
        metrics = Metrics()
        codec = self._codec = TextCodec.load(engine_dir, engine.tokens)
        self._generator = Generator(self._session, codec, metrics, CallLimits(config), model_name or engine.model_name)
        exposition = Exposition(metrics, self._session, self._generator.model_name, config.metrics_compat)
        kserve = Edge(
            self._generator,
            access,
            Catalog(self._generator.model_name, config.kserve_dialect, codec.vocabulary),
            Inference(self._generator, access, metrics),
        )
        app = openai_app(self._generator, exposition, access, config)
        app.router.routes.append(Route("/v2{rest:path}", kserve_app(kserve, config)))
        self._http = HttpServer(app, config, tls)
        admin = AdminServicer(self._session, metrics, self._generator.model_name, access, surroundings)
        servicer = InferenceServicer(self._generator, access, config.stall_limit_s)
        self._grpc = GrpcServer(servicer, admin, config, tls, grpc_service(kserve, config.stall_limit_s))

    @property
    def model_name(self) -> str:
        return self._generator.model_name

    @property
    def http_port(self) -> int:
        return self._doors.http_port

    @property
    def grpc_port(self) -> int:
        return self._doors.grpc_port

    async def connect(self) -> None:
        """Before `start`, where others serve meanwhile: return once the scheduler is there, so that no call is refused."""
        self._session.start()
        await self.ready()

    async def start(self) -> None:
        """Listen. Raises ConfigError when the chat template or an address cannot be used; nothing runs then."""
        allow_descriptors(2 * self._config.max_connections + _NUM_OTHER_DESCRIPTORS)
        async with AsyncExitStack() as undo:
            await self._codec.start()
            undo.push_async_callback(self._codec.close)
            self._doors = undo.enter_context(closing(self._surroundings.take_doors(self._config)))
            await self._grpc.start(self._doors.grpc_port)
            undo.push_async_callback(self._grpc.stop, 0.0)
            await self._http.start(self._doors.http)
            undo.pop_all()
        self._session.start()
        self._health = asyncio.create_task(self._follow_readiness())

    async def ready(self) -> None:
        """Return once the scheduler is connected: calls can start."""
        await self._session.connection.on.wait()

    async def retire(self) -> None:
        """Let those who are here move to other gateways on the same ports, and serve them until they have; then `stop`."""
        self._http.leave()
        await asyncio.gather(leave(self.grpc_port), asyncio.sleep(self._config.retreat_s))

    async def stop(self, drain_timeout_s: float) -> None:
        """Accept nothing more, let open calls end within `drain_timeout_s`, end the others as Unavailable."""
        servers = (self._http, self._grpc)
        draining = [asyncio.create_task(server.stop(drain_timeout_s + _LAST_WORDS_S)) for server in servers]
        await self._generator.drain(drain_timeout_s)
        await self._session.close()
        self._health.cancel()
        await asyncio.gather(self._health, return_exceptions=True)
        # What is open now is no call: a health watch, an upload that was never finished.
        await asyncio.gather(*(server.stop(_LAST_WORDS_S) for server in servers), *draining)
        await self._codec.close()
        self._doors.close()

    async def _follow_readiness(self) -> None:
        """For gRPC's health."""
        while True:
            await self._session.ready.on.wait()
            await self._grpc.set_ready(ready=True)
            await self._session.ready.off.wait()
            await self._grpc.set_ready(ready=False)
