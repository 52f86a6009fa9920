"""What a scrape of /metrics says."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tokenizers import Tokenizer

from jetway.runtime.gateway.app import Gateway
from jetway.runtime.gateway.surroundings import Alone
from jetway.v1 import scheduler_pb2
from tests.support.fake_scheduler import ENGINE, LENGTH, FakeScheduler, answering
from tests.support.gateway import CONFIG
from tests.support.http import exchange, request

HELLO: Any = [{"role": "user", "content": "hello"}]


async def scrape(gateway: Gateway) -> dict[str, float]:
    """Every sample by its name and labels, as they stand in the text."""
    answer = await exchange(gateway.http_port, request("GET", "/metrics"))
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    samples: dict[str, float] = {}
    for family in text_string_to_metric_families(answer.body.decode()):
        for name, labels, value, *_ in family.samples:
            shown = ",".join(f'{key}="{value}"' for key, value in labels.items())
            samples[f"{name}{{{shown}}}" if shown else name] = value
    return samples


async def test_calls_are_counted_by_outcome(
    gateway: Gateway, client: openai.AsyncOpenAI, scheduler: FakeScheduler, tokenizer: Tokenizer
) -> None:
    scheduler.script = answering(tokenizer.encode("abc", add_special_tokens=False).ids, reason=LENGTH)

    await client.completions.create(model="tiny", prompt="hi")
    await client.completions.create(model="tiny", prompt="hi", stop="b")
    wrong: list[Any] = [{"model": "other"}, {"model": "tiny", "temperature": -1}]
    for params in wrong:
        with pytest.raises(openai.APIStatusError):
            await client.completions.create(prompt="hi", **params)

    samples = await scrape(gateway)
    outcomes = {name: value for name, value in samples.items() if name.startswith("jetway_requests_total")}
    assert outcomes == {
        'jetway_requests_total{outcome="length"}': 1,
        'jetway_requests_total{outcome="stop"}': 1,
        'jetway_requests_total{outcome="model_not_found"}': 1,
        'jetway_requests_total{outcome="invalid_argument"}': 1,
    }
    assert samples["jetway_prompt_tokens_total"] == 2 * 3
    assert samples["jetway_generation_tokens_total"] == 3 + 2
    assert samples["jetway_time_to_first_token_seconds_count"] == 2
    assert samples["jetway_live_requests"] == 0


async def test_figures_of_the_scheduler_are_those_of_the_moment(gateway: Gateway, scheduler: FakeScheduler) -> None:
    scheduler.stats = scheduler_pb2.StatsResponse(
        engine=ENGINE, num_running=3, num_waiting=4, num_free_device_blocks=16, num_steps=7, num_prompt_tokens=50,
        num_cached_tokens=20, num_copied_out_blocks=8, copied_out_s=0.5,
        num_copied_in_blocks=6, copied_in_s=0.25, served_tokens={"acme": 9}, blocked={1: "blocks"},
        preemptions=[scheduler_pb2.PreemptionCount(reason="priority", mode="swap", count=2)],
        rejections={"max_queued_requests": 3},
        decode_times={"batch": scheduler_pb2.Histogram(bounds=[0.5], counts=[1, 2], total=8.0)},
        queue_times={"batch": scheduler_pb2.Histogram(bounds=[0.5, 2.0], counts=[4, 0, 1], total=7.5)},
        classes=[
            scheduler_pb2.ClassStats(name="batch", num_queued=5, waiting={"the token budget is spent": 5}),
            scheduler_pb2.ClassStats(name="standard", expected_wait_s=1.5),
        ],
    )  # fmt: skip

    samples = await scrape(gateway)

    expected = {
        "jetway_scheduler_up": 1, "jetway_running_sequences": 3, "jetway_waiting_sequences": 4,
        "jetway_free_device_blocks": 16, "jetway_device_blocks": 64, "jetway_kv_cache_usage_ratio": 0.75,
        "jetway_steps_total": 7, "jetway_prefix_cache_queried_tokens_total": 50,
        "jetway_prefix_cache_hit_tokens_total": 20, 
        'jetway_rejections_total{reason="max_queued_requests"}': 3,
        'jetway_rejections_total{reason="queue_timeout_s"}': 0,
        'jetway_queue_time_seconds_bucket{class="batch",le="0.5"}': 4,
        'jetway_queue_time_seconds_bucket{class="batch",le="2.0"}': 4,
        'jetway_queue_time_seconds_bucket{class="batch",le="+Inf"}': 5,
        'jetway_queue_time_seconds_count{class="batch"}': 5,
        'jetway_queue_time_seconds_sum{class="batch"}': 7.5,
        'jetway_decode_time_seconds_bucket{class="batch",le="0.5"}': 1,
        'jetway_decode_time_seconds_bucket{class="batch",le="+Inf"}': 3,
        'jetway_decode_time_seconds_sum{class="batch"}': 8.0,
        'jetway_class_waiting_sequences{class="batch",reason="the token budget is spent"}': 5,
        'jetway_class_waiting_sequences{class="batch",reason="another sequence is computing its prefix"}': 0,
        'jetway_class_waiting_sequences{class="standard",reason="the token budget is spent"}': 0,
        'jetway_copied_blocks_total{direction="out"}': 8, 'jetway_copied_blocks_total{direction="in"}': 6,
        'jetway_copied_bytes_total{direction="out"}': 8 * ENGINE.block_bytes,
        'jetway_copied_bytes_total{direction="in"}': 6 * ENGINE.block_bytes,
        'jetway_copy_seconds_total{direction="out"}': 0.5, 'jetway_copy_seconds_total{direction="in"}': 0.25,
        'jetway_served_tokens_total{tenant="acme"}': 9,
        'jetway_blocked{level="1",reason="blocks"}': 1,
        'jetway_preemptions_total{mode="swap",reason="priority"}': 2,
        'jetway_preemptions_total{mode="recompute",reason="priority"}': 0,
        'jetway_preemptions_total{mode="swap",reason="kv_full"}': 0,
        'jetway_preemptions_total{mode="recompute",reason="kv_full"}': 0,
        'jetway_class_queued_sequences{class="batch"}': 5,
        'jetway_class_expected_wait_seconds{class="standard"}': 1.5,
    }  # fmt: skip
    assert {name: samples.get(name) for name in expected} == expected
    assert 'jetway_class_expected_wait_seconds{class="batch"}' not in samples


async def test_without_the_scheduler_the_gateways_own_figures_remain(engine_dir: Path) -> None:
    gateway = Gateway(CONFIG, engine_dir, None, Alone("unix:/nonexistent.sock"))
    await gateway.start()

    samples = await scrape(gateway)

    assert samples["jetway_scheduler_up"] == 0
    assert samples["jetway_live_requests"] == 0
    assert "jetway_running_sequences" not in samples
    await gateway.stop(0.0)


async def test_names_of_vllm_stand_beside_where_asked(engine_dir: Path, scheduler: FakeScheduler) -> None:
    gateway = Gateway(replace(CONFIG, metrics_compat="vllm"), engine_dir, None, Alone(scheduler.address))
    await gateway.start()
    await gateway.ready()
    scheduler.stats = scheduler_pb2.StatsResponse(engine=ENGINE, num_running=3)

    samples = await scrape(gateway)

    assert samples["jetway_running_sequences"] == 3
    assert samples['vllm:num_requests_running{model_name="tiny"}'] == 3
    assert samples['vllm:num_preemptions_total{model_name="tiny"}'] == 0
    await gateway.stop(0.0)


async def test_names_of_vllm_are_absent_otherwise(gateway: Gateway) -> None:
    assert not [name for name in await scrape(gateway) if name.startswith("vllm")]
