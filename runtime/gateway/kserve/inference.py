"""One inference request from its tensors to its replies, the same over gRPC and HTTP."""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass

from jetway.runtime.errors import Cancelled, InvalidArgument, Unimplemented
from jetway.runtime.gateway.access import Access, Envelope
from jetway.runtime.gateway.beside import beside_the_loop
from jetway.runtime.gateway.call import Call
from jetway.runtime.gateway.faults import faults_as_errors
from jetway.runtime.gateway.generate import Generator
from jetway.runtime.gateway.metrics.instruments import Metrics
from jetway.runtime.gateway.placement import Placement
from jetway.runtime.gateway.words import quoted

from .catalog import Model
from .dialects.base import STOP_INPUT, Asked
from .errors import label
from .fields import fields_as_tensors
from .parameters import Parameters
from .replies import Replies, Reply, ReplyOptions
from .running import RequestName, RunningRequests
from .signature import check
from .statistics import Statistics
from .tensor import GivenTensor

NO_PARAMETERS = Parameters()


@dataclass(frozen=True, slots=True, kw_only=True)
class InferRequest:
    """`outputs` names those that are wanted, all where it is empty. `several`: how to refuse a request that would get
    several replies, for a transport that takes one; None: it takes any number.
    """

    model: Model
    id: str
    inputs: Sequence[GivenTensor]
    parameters: Parameters = NO_PARAMETERS
    outputs: frozenset[str] = frozenset()
    several: str | None = None


class Inference:
    """Runs requests on the one engine, whatever model they name."""

    def __init__(self, generator: Generator, access: Access, metrics: Metrics) -> None:
        self._generator = generator
        self._access = access
        self._metrics = metrics
        self._running = RunningRequests()
        self.statistics = Statistics()

    @asynccontextmanager
    async def replies(self, request: InferRequest, envelope: Envelope) -> AsyncIterator[AsyncIterator[Reply]]:
        """Entered once the scheduler has accepted the request; leaving it cancels what is still open.

        Raises a JetwayError, also from the iteration.
        """
        name = RequestName(envelope.caller.tenant, request.id)
        if _is_stop(request):
            yield self._stop(request.model, name)
            return
        with (
            faults_as_errors(envelope.request_id),
            self._generator.watch(envelope.request_id) as watch,
            self.statistics.inference(request.model) as timing,
            self._running.entered(name) as stoppable,
        ):
            num_elements = sum(len(each.data) for each in request.inputs)
            asked = await beside_the_loop(lambda: _parse(request), num_elements)
            with _named_as_given(request):
                async with self._generator.answer(self._call(asked, request, envelope), watch) as answer:
                    writer = request.model.dialect.writer(asked, answer.num_prompt_tokens)
                    yield Replies(answer, writer, _options(asked, request), stoppable)
                    timing.span = answer.span

    def _stop(self, model: Model, name: RequestName) -> AsyncIterator[Reply]:
        if not name.request_id:
            raise InvalidArgument("A request id must be provided for request cancellation", param="id")
        self._running.stop(name)
        if not model.dialect.acknowledges_stop:
            raise Cancelled("Request cancelled by client")
        return _each([Reply()])

    def _call(self, asked: Asked, request: InferRequest, envelope: Envelope) -> Call:
        """Raises InvalidArgument and PermissionDenied."""
        return Call(
            request_id=envelope.request_id,
            model=None,
            prompts=(asked.prompt,),
            sampling=asked.sampling,
            seed=asked.seed,
            n=asked.n,
            max_tokens=asked.max_tokens,
            stop=asked.stop,
            tenant=envelope.caller.tenant,
            placement=self._place(request.parameters.priority, envelope),
            deadline_s=envelope.deadline_s,
            queue_timeout_s=request.parameters.queue_timeout_s,
        )

    def _place(self, level: int, envelope: Envelope) -> Placement:
        placement, remapped = self._access.placer.triton(level, envelope.caller, envelope.service_class)
        if remapped:
            self._metrics.remapped_priorities.inc()
        return placement


def _is_stop(request: InferRequest) -> bool:
    """What else such a request holds is not read: clients send tensors without content."""
    if all(spec.name != STOP_INPUT for spec in request.model.dialect.inputs):
        return False
    return any(
        each.name == STOP_INPUT and each.datatype == "BOOL" and each.data in (b"\x01", [True])
        for each in request.inputs
    )


def _parse(request: InferRequest) -> Asked:
    """Raises InvalidArgument, and Unimplemented for several replies where there can be one."""
    model = request.model
    try:
        unknown = request.outputs - {spec.name for spec in model.dialect.outputs}
        if unknown:
            raise InvalidArgument(f"unexpected inference output {quoted(min(unknown))} for model '{model.name}'")
        with _named_as_given(request):
            asked = model.dialect.parse(check(model.name, model.dialect.inputs, request.inputs))
    except InvalidArgument as error:
        raise InvalidArgument(label(request.id) + error.message, param=error.param) from error
    if request.several is not None and (asked.stream or asked.n > 1):
        raise Unimplemented(request.several)
    return asked


def _named_as_given(request: InferRequest) -> AbstractContextManager[None]:
    """Inside, errors that are about a tensor name it."""
    return fields_as_tensors(request.model.dialect.fields, {each.name for each in request.inputs})


def _options(asked: Asked, request: InferRequest) -> ReplyOptions:
    return ReplyOptions(stream=asked.stream, empty_final=request.parameters.empty_final, wanted=request.outputs)


async def _each(replies: Iterable[Reply]) -> AsyncIterator[Reply]:
    for reply in replies:
        yield reply
