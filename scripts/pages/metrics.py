"""docs/metrics.md, from the metric families themselves."""

from collections.abc import Iterable

from prometheus_client import Metric

from jetway.runtime.gateway.metrics import scheduler
from jetway.runtime.gateway.metrics.instruments import Metrics
from jetway.runtime.gateway.metrics.vllm import NAMES
from jetway.v1 import scheduler_pb2

INTRODUCTION = """\
<!-- Made by scripts/docs from runtime/gateway/metrics/. -->
# Metrics

`GET /metrics` on the port of the OpenAI API, for Prometheus. With `metrics_compat: vllm`, figures that vLLM has too
stand there a second time under its names, with the label `model_name`; labels that it does not know are summed over.
"""

GATEWAY = """
## Of this gateway
"""

SCHEDULER = """
## Of the scheduler

As they stand when they are asked for; absent while the scheduler does not answer (`jetway_scheduler_up` 0). Every
gateway says the same of one scheduler: take the maximum over gateways, not the sum.
"""


def page() -> str:
    own = Metrics().registry.collect()
    schedulers = scheduler.families(scheduler_pb2.StatsResponse())
    return "\n".join([INTRODUCTION + GATEWAY, *_table(own), SCHEDULER, *_table(schedulers), ""])


def _table(families: Iterable[Metric]) -> list[str]:
    return ["| name | type | vLLM | |", "|---|---|---|---|", *(_row(family) for family in families)]


def _row(family: Metric) -> str:
    suffix = "_total" if family.type == "counter" else ""
    vllm = f"`{NAMES[family.name].name}{suffix}`" if family.name in NAMES else ""
    return f"| `{family.name}{suffix}` | {family.type} | {vllm} | {family.documentation} |"
