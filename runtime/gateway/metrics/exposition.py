"""What a scrape gets: the gateway's figures, and the scheduler's as they stand at that moment."""

from collections.abc import Iterator
from typing import Literal

from prometheus_client import CONTENT_TYPE_LATEST, Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from jetway.runtime.errors import Unavailable
from jetway.runtime.gateway.session import SchedulerSession

from . import scheduler, vllm
from .instruments import Metrics

CONTENT_TYPE = CONTENT_TYPE_LATEST
Compat = Literal["off", "vllm"]


class Exposition:
    """Without the scheduler it says what the gateway knows, and jetway_scheduler_up 0."""

    def __init__(self, metrics: Metrics, session: SchedulerSession, model_name: str, compat: Compat) -> None:
        self._metrics = metrics
        self._session = session
        self._model_name = model_name
        self._compat = compat

    async def render(self) -> bytes:
        families = list(self._metrics.collect())
        try:
            families += scheduler.families(await self._session.stats())
            up = 1
        except Unavailable:
            up = 0
        families.append(GaugeMetricFamily("jetway_scheduler_up", "1 while the scheduler says its figures.", value=up))
        if self._compat == "vllm":
            families += vllm.renamed(list(families), self._model_name)
        return generate_latest(_Families(families))


class _Families(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return iter(self._families)
