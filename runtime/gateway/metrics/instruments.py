"""The gateway's own figures. Prometheus adds `_total` to the name of a counter."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric

from jetway.runtime.errors import JetwayError, edge_of

from . import sharing

_LATENCIES_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_TOKEN_LATENCIES_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5, 5.0)


class Metrics:
    """One gateway's, in a registry of its own."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self.requests = Counter(
            "jetway_requests", "Requests that ended, by outcome: stop, length, or the code of an error.",
            ["outcome"], registry=registry,
        )  # fmt: skip
        self.remapped_priorities = Counter(
            "jetway_remapped_priorities", "Requests whose Triton priority is no level here: they ran in the default class.",
            registry=registry,
        )  # fmt: skip
        self.live_requests = Gauge(
            "jetway_live_requests", "Requests that have not ended.", registry=registry, multiprocess_mode="livesum"
        )
        self.prompt_tokens = Counter("jetway_prompt_tokens", "Prompt tokens of accepted requests.", registry=registry)
        self.generation_tokens = Counter(
            "jetway_generation_tokens", "Tokens generated that count.", registry=registry
        )  # fmt: skip
        self.time_to_first_token = Histogram(
            "jetway_time_to_first_token_seconds", "From the request's arrival to its first token.",
            buckets=_LATENCIES_S, registry=registry,
        )  # fmt: skip
        self.inter_token_latency = Histogram(
            "jetway_inter_token_latency_seconds", "From one delta of a choice to the next, over the tokens it brings.",
            buckets=_TOKEN_LATENCIES_S, registry=registry,
        )  # fmt: skip
        self.request_latency = Histogram(
            "jetway_request_latency_seconds", "From the request's arrival to its end, if it was accepted.",
            buckets=_LATENCIES_S, registry=registry,
        )  # fmt: skip

    def collect(self) -> Iterable[Metric]:
        """As they stand, and of all gateways where these share them."""
        return sharing.collect_all() if sharing.are_shared() else self.registry.collect()

    @contextmanager
    def refusals(self) -> Iterator[None]:
        """Count the error that the block ends with, if any, as the outcome of a request."""
        try:
            yield
        except JetwayError as error:
            self.requests.labels(edge_of(error).code.lower()).inc()
            raise
