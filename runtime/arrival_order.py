"""The scheduler of the policy `fcfs`."""

from collections.abc import Mapping
from collections.abc import Sequence as Items
from dataclasses import replace

from jetway.scheduler.classes import STANDARD
from jetway.scheduler.request import Request
from jetway.scheduler.scheduler import Scheduler


class ArrivalOrder(Scheduler):
    """Whatever class and priority a request names, it stands in the one queue as it came."""

    def add(self, request: Request, arrival: float, generated: Mapping[int, Items[int]] | None = None) -> None:
        super().add(replace(request, service_class=STANDARD, priority=0), arrival, generated)
