"""What each step computes, who yields, and how sequences end."""

import pytest

from jetway.scheduler.class_queue import QueueFull
from jetway.scheduler.classes import ServiceClass
from jetway.scheduler.events import FinishReason, RequestFinished, SequenceFinished
from jetway.scheduler.limits import LimitError, PreemptionMode
from jetway.scheduler.request import InvalidRequest, Request, SamplingParams, SequenceId
from jetway.scheduler.stats import LastStep, Progress
from tests.support.scheduling import (
    Driver,
    ReferenceExecutor,
    expected_tokens,
    make_engine,
    make_request,
    make_scheduler,
)


def rows(driver: Driver) -> list[list[tuple[int, int]]]:
    """Slot and tokens of each row, plan by plan."""
    return [list(zip(plan.row_slots, plan.row_tokens, strict=True)) for plan in driver.plans]


def test_one_request_prefills_then_decodes() -> None:
    """The prompt is one row, each later token another; the last sampled token is never computed."""
    driver = Driver(make_scheduler())
    request = make_request("a", prompt_len=6, max_tokens=3)
    driver.scheduler.add(request, 0.0)
    driver.run()
    assert rows(driver) == [[(0, 6)], [(0, 1)], [(0, 1)], []]
    assert [list(plan.releases) for plan in driver.plans] == [[], [], [], [0]]
    assert driver.tokens("a") == expected_tokens(request)
    assert driver.log[-2:] == [
        SequenceFinished(SequenceId("a", 0), FinishReason.LENGTH, 3, 0, "", 0.0),
        RequestFinished("a"),
    ]


def test_a_request_joins_the_running_batch_at_the_next_step() -> None:
    """Continuous batching: decodes stand before the prefill of the newcomer, in one step."""
    driver = Driver(make_scheduler())
    driver.scheduler.add(make_request("a", prompt_len=4, max_tokens=4), 0.0)
    driver.step()
    driver.scheduler.add(make_request("b", prompt_len=5, max_tokens=2), 0.0)
    driver.step()
    assert rows(driver) == [[(0, 4)], [(0, 1), (1, 5)]]


def test_a_long_prompt_is_computed_in_whole_blocks_beside_the_decodes() -> None:
    """The budget of 16 leaves 15 beside a decode: 12 are whole blocks; the last chunk is what remains."""
    driver = Driver(make_scheduler(max_num_batched_tokens=16))
    driver.scheduler.add(make_request("a", prompt_len=4, max_tokens=9), 0.0)
    driver.step()
    request = make_request("b", prompt_len=30, max_tokens=1)
    driver.scheduler.add(request, 0.0)
    driver.run()
    assert rows(driver)[1:5] == [[(0, 1), (1, 12)], [(0, 1), (1, 12)], [(0, 1), (1, 6)], [(0, 1)]]
    assert driver.tokens("b") == expected_tokens(request)


def test_a_full_batch_of_decodes_leaves_a_block_for_the_best_prefill() -> None:
    """No prefill starves: the least allowed budget is max_num_seqs + one block."""
    driver = Driver(make_scheduler(max_num_seqs=3, max_num_batched_tokens=7))
    for id in "ab":
        driver.scheduler.add(make_request(id, prompt_len=1, max_tokens=20), 0.0)
    driver.step()
    driver.scheduler.add(make_request("c", prompt_len=12, max_tokens=1), 0.0)
    driver.run()
    assert [dict(row)[2] for row in rows(driver)[1:4]] == [4, 4, 4]


def test_a_stop_token_ends_the_sequence_with_that_token() -> None:
    request = make_request("a", max_tokens=10)
    third = expected_tokens(request)[2]
    driver = Driver(make_scheduler(), ReferenceExecutor(stops=lambda token: token == third))
    driver.scheduler.add(request, 0.0)
    driver.run()
    assert driver.tokens("a") == expected_tokens(request)[:3]
    assert driver.finishes() == {"a/0": (FinishReason.STOP, 3)}


@pytest.mark.parametrize("depth", [0, 1])
def test_the_n_sequences_of_a_request_end_one_by_one_and_the_request_once(depth: int) -> None:
    driver = Driver(make_scheduler(), depth=depth)
    request = make_request("a", max_tokens=3, n=3)
    driver.scheduler.add(request, 0.0)
    driver.run()
    assert [driver.tokens("a", index) for index in range(3)] == [expected_tokens(request, i) for i in range(3)]
    assert len(driver.finishes()) == 3
    assert driver.log.count(RequestFinished("a")) == 1
    assert driver.log[-1] == RequestFinished("a")


@pytest.mark.parametrize("depth", [0, 1])
def test_out_of_blocks_the_worst_rank_yields_and_computes_again(depth: int) -> None:
    """Three sequences that need 8 blocks each share 12: the earliest is never preempted, all end right."""
    driver = Driver(make_scheduler(num_blocks=12), ReferenceExecutor(num_blocks=12), depth=depth)
    requests = [make_request(id, prompt_len=8, max_tokens=24) for id in "abc"]
    for request in requests:
        driver.scheduler.add(request, 0.0)
    driver.run()
    assert [driver.tokens(request.id) for request in requests] == [expected_tokens(r) for r in requests]
    starts = [start.sequence_id.request_id for plan in driver.plans for start in plan.starts]
    assert starts.count("a") == 1
    assert driver.scheduler.stats(0.0).counters.num_preemptions == len(starts) - 3 > 0
    assert driver.scheduler.stats(0.0).num_free_device_blocks == 12


def test_a_preempted_sequence_comes_back_before_anything_starts() -> None:
    driver = Driver(make_scheduler(num_blocks=6), ReferenceExecutor(num_blocks=6))
    for id in "ab":
        driver.scheduler.add(make_request(id, prompt_len=8, max_tokens=12), 0.0)
    while not driver.scheduler.stats(0.0).counters.num_preemptions:
        driver.step()
    driver.scheduler.add(make_request("c", prompt_len=1, max_tokens=1), 0.0)
    driver.run()
    starts = [start.sequence_id.request_id for plan in driver.plans for start in plan.starts]
    assert starts == ["a", "b", "b", "c"]


def test_a_pool_for_one_sequence_finishes_everything() -> None:
    driver = Driver(make_scheduler(num_blocks=4), ReferenceExecutor(num_blocks=4))
    requests = [make_request(str(i), prompt_len=1 + i % 7, max_tokens=9) for i in range(9)]
    for request in requests:
        driver.scheduler.add(request, 0.0)
    driver.run()
    assert [driver.tokens(request.id) for request in requests] == [expected_tokens(r) for r in requests]


def test_without_preemption_a_start_reserves_all_it_may_need() -> None:
    driver = Driver(make_scheduler(num_blocks=12, preemption_mode=PreemptionMode.OFF), ReferenceExecutor(12))
    for id in "abc":
        driver.scheduler.add(make_request(id, prompt_len=4, max_tokens=20), 0.0)
    driver.step()
    assert driver.scheduler.stats(0.0).num_running == 2
    assert [len(start.blocks) for start in driver.plans[0].starts] == [6, 6]
    driver.run()
    assert driver.scheduler.stats(0.0).counters.num_preemptions == 0
    assert len(driver.finishes()) == 3


def test_the_watermark_is_left_free_by_starts_unless_nothing_runs() -> None:
    driver = Driver(make_scheduler(num_blocks=10, watermark=0.2), ReferenceExecutor(10))
    driver.scheduler.add(make_request("a", prompt_len=36, max_tokens=4), 0.0)
    driver.step()
    assert driver.scheduler.stats(0.0).num_running == 1
    driver.scheduler.add(make_request("b", prompt_len=1, max_tokens=1), 0.0)
    driver.step()
    assert driver.scheduler.stats(0.0).num_waiting == 1


class TestAbort:
    @pytest.mark.parametrize("steps", [0, 1, 3, 5])
    @pytest.mark.parametrize("depth", [0, 1])
    def test_at_any_time_all_is_given_back(self, steps: int, depth: int) -> None:
        """Waiting, in prefill (chunks of 16), in decode, with a plan in flight: blocks are free by the next plan."""
        driver = Driver(make_scheduler(max_num_batched_tokens=16), depth=depth)
        driver.scheduler.add(make_request("a", prompt_len=40, max_tokens=50), 0.0)
        other = make_request("b", prompt_len=3, max_tokens=9)
        driver.scheduler.add(other, 0.0)
        for _ in range(steps):
            driver.step()
        driver.scheduler.abort("a")
        driver.run()
        assert driver.finishes()["a/0"][0] is FinishReason.CANCELLED
        assert driver.log.count(RequestFinished("a")) == 1
        assert driver.tokens("b") == expected_tokens(other)
        assert driver.scheduler.stats(0.0).num_free_device_blocks == 100
        assert driver.executor.residents == {}

    def test_while_preempted(self) -> None:
        driver = Driver(make_scheduler(num_blocks=6), ReferenceExecutor(num_blocks=6))
        for id in "ab":
            driver.scheduler.add(make_request(id, prompt_len=8, max_tokens=12), 0.0)
        while not driver.scheduler.stats(0.0).counters.num_preemptions:
            driver.step()
        driver.scheduler.abort("b")
        driver.run()
        assert driver.finishes()["b/0"][0] is FinishReason.CANCELLED
        assert driver.scheduler.stats(0.0).num_free_device_blocks == 6

    def test_of_all_sequences_of_a_request(self) -> None:
        driver = Driver(make_scheduler(max_num_seqs=2, max_num_batched_tokens=64))
        driver.scheduler.add(make_request("a", n=3), 0.0)
        driver.step()
        driver.scheduler.abort("a")
        driver.run()
        assert sorted(driver.finishes()) == ["a/0", "a/1", "a/2"]
        assert driver.scheduler.stats(0.0).num_running == driver.scheduler.stats(0.0).num_waiting == 0

    def test_of_what_has_ended_or_never_was_changes_nothing(self) -> None:
        driver = Driver(make_scheduler())
        driver.scheduler.add(make_request("a"), 0.0)
        driver.run()
        before = list(driver.log)
        driver.scheduler.abort("a")
        driver.scheduler.abort("never")
        driver.run()
        assert driver.log == before


def test_finish_keeps_so_many_tokens_and_ends_as_stop() -> None:
    """A stop string was found: overshoot does not count."""
    driver = Driver(make_scheduler())
    driver.scheduler.add(make_request("a", max_tokens=50), 0.0)
    for _ in range(6):
        driver.step()
    driver.scheduler.finish(SequenceId("a", 0), 2)
    driver.run()
    assert driver.finishes() == {"a/0": (FinishReason.STOP, 2)}
    assert driver.scheduler.stats(0.0).num_free_device_blocks == 100


def test_a_sequence_that_the_engine_cannot_compute_fails_alone() -> None:
    driver = Driver(make_scheduler(), ReferenceExecutor(fails=frozenset({"a"})))
    other = make_request("b", max_tokens=5)
    driver.scheduler.add(make_request("a"), 0.0)
    driver.scheduler.add(other, 0.0)
    driver.run()
    assert SequenceFinished(SequenceId("a", 0), FinishReason.FAILED, 0, 0, "it cannot be computed", 0.0) in driver.log
    assert driver.tokens("b") == expected_tokens(other)


def test_what_a_failed_sequence_computed_is_not_shared() -> None:
    """Its KV may be what made it fail: an equal prompt computes everything itself."""
    driver = Driver(make_scheduler(), ReferenceExecutor(fails=frozenset({"a"})))
    driver.scheduler.add(make_request("a", prompt_len=13, prefix="p", prefix_len=13), 0.0)
    driver.run()
    driver.scheduler.add(make_request("b", prompt_len=13, prefix="p", prefix_len=13), 0.0)
    driver.run()
    assert [start.computed for plan in driver.plans for start in plan.starts] == [0, 0]


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("steps", [0, 1, 2, 7])
def test_a_lost_executor_loses_no_request(depth: int, steps: int) -> None:
    """Every live sequence starts again from its tokens on the new executor; the tokens are the undisturbed ones."""
    driver = Driver(make_scheduler(max_num_batched_tokens=16), depth=depth)
    requests = [make_request(id, prompt_len=10, max_tokens=9) for id in "abc"]
    for request in requests:
        driver.scheduler.add(request, 0.0)
    for _ in range(steps):
        driver.step()
    driver.lose_executor(ReferenceExecutor())
    driver.scheduler.check()
    assert driver.scheduler.plan(0.0) is None
    driver.scheduler.executor_ready(make_engine(), 0.0)
    driver.run()
    assert [driver.tokens(request.id) for request in requests] == [expected_tokens(r) for r in requests]
    assert driver.plans[-1].step == len(driver.plans) - steps, "steps count from 1 in the new session"


def test_a_smaller_pool_after_a_loss_fails_what_it_cannot_hold() -> None:
    driver = Driver(make_scheduler())
    driver.scheduler.add(make_request("big", prompt_len=4, max_tokens=40), 0.0)
    driver.scheduler.add(make_request("small", prompt_len=4, max_tokens=4), 0.0)
    driver.step()
    driver.lose_executor(ReferenceExecutor(num_blocks=5))
    driver.scheduler.executor_ready(make_engine(num_blocks=5), 0.0)
    driver.run()
    assert driver.finishes() == {"big/0": (FinishReason.FAILED, 1), "small/0": (FinishReason.LENGTH, 4)}


class TestRefusals:
    @pytest.mark.parametrize(
        ("request_", "param", "message"),
        [
            (make_request("a", prompt_len=400), "prompt", "the prompt has 400 tokens; the KV cache pool of 80 tokens"),
            (make_request("a", prompt_len=40, max_tokens=41), "max_tokens", "exceed the KV cache pool of 80 tokens"),
            (
                Request(id="a", prompt=[1, 1000], sampling=SamplingParams()),
                "prompt",
                "token id 1000 is not in the vocabulary of 1000 tokens",
            ),
            (
                Request(id="a", prompt=[1], sampling=SamplingParams(stop_token_ids=(5000,))),
                "stop_token_ids",
                "token id 5000 is not in the vocabulary of 1000 tokens",
            ),
        ],
    )
    def test_what_can_never_run_is_refused_by_name(self, request_: Request, param: str, message: str) -> None:
        scheduler = make_scheduler(num_blocks=20)
        with pytest.raises(InvalidRequest, match=message) as refusal:
            scheduler.add(request_, 0.0)
        assert refusal.value.param == param
        assert scheduler.events() == []
        assert scheduler.plan(0.0) is None

    def test_the_longest_that_fits_runs_to_its_end(self) -> None:
        driver = Driver(make_scheduler(num_blocks=20), ReferenceExecutor(num_blocks=20))
        driver.scheduler.add(make_request("a", prompt_len=40, max_tokens=40), 0.0)
        driver.scheduler.add(make_request("b", prompt_len=79, max_tokens=None), 0.0)
        driver.run()
        assert driver.finishes() == {"a/0": (FinishReason.LENGTH, 40), "b/0": (FinishReason.LENGTH, 1)}

    def test_a_full_queue_refuses_by_requests_and_by_tokens(self) -> None:
        scheduler = make_scheduler(classes=[ServiceClass(max_queued_requests=2, max_queued_tokens=10)])
        scheduler.add(make_request("a", prompt_len=4), 0.0)
        with pytest.raises(QueueFull, match="may queue 10 prompt tokens; this request makes it 11"):
            scheduler.add(make_request("b", prompt_len=7), 0.0)
        scheduler.add(make_request("c", prompt_len=1), 0.0)
        with pytest.raises(QueueFull, match="may queue 2 requests; this request makes it 3"):
            scheduler.add(make_request("d", prompt_len=1), 0.0)
        scheduler.abort("a")
        scheduler.add(make_request("d", prompt_len=1, n=3), 0.0)

    def test_what_could_never_queue_is_wrong_and_not_too_early(self) -> None:
        scheduler = make_scheduler(classes=[ServiceClass(max_queued_tokens=10)])
        with pytest.raises(InvalidRequest, match="may queue 10 prompt tokens; this request has 12") as refusal:
            scheduler.add(make_request("a", prompt_len=4, n=3), 0.0)
        assert refusal.value.param == "prompt"

    def test_an_id_that_lives_already_is_refused_and_the_first_goes_on(self) -> None:
        driver = Driver(make_scheduler())
        request = make_request("a")
        driver.scheduler.add(request, 0.0)
        with pytest.raises(InvalidRequest, match="a request 'a' is live already"):
            driver.scheduler.add(make_request("a", prompt_len=9), 0.0)
        driver.run()
        assert driver.tokens("a") == expected_tokens(request)

    def test_limits_that_would_starve_a_prefill_are_refused_at_the_start(self) -> None:
        with pytest.raises(LimitError, match="must be at least 12: max_num_seqs .8. . the block size .4."):
            make_scheduler(max_num_seqs=8, max_num_batched_tokens=11)

    def test_limits_beyond_the_engine_are_refused_at_the_start(self) -> None:
        with pytest.raises(LimitError, match="max_num_batched_tokens is 2000, but the engine was built for 1024"):
            make_scheduler(max_num_batched_tokens=2000)


def test_same_inputs_same_plans() -> None:
    def plans() -> list[object]:
        driver = Driver(make_scheduler(num_blocks=10, max_num_batched_tokens=16), ReferenceExecutor(num_blocks=10))
        for index in range(6):
            driver.scheduler.add(make_request(str(index), prompt_len=5 + index, max_tokens=12), 0.0)
        driver.run()
        return [repr(plan) for plan in driver.plans]

    assert plans() == plans()


def test_progress_says_whether_there_is_work_and_when_the_last_step_was() -> None:
    driver = Driver(make_scheduler())
    assert driver.scheduler.progress() == Progress(True, False, 0, 0, None)
    driver.scheduler.add(make_request("a", prompt_len=4, max_tokens=2), 0.0)
    assert driver.scheduler.progress() == Progress(True, True, 0, 0, None)
    driver.step()
    resident = driver.scheduler.progress()
    assert (resident.has_work, resident.num_steps, resident.num_sampled_tokens) == (True, 1, 1)
    assert resident.last_step == LastStep(driver.now, 0.0)
    driver.run()
    driver.scheduler.executor_lost(driver.now)
    assert driver.scheduler.progress() == Progress(False, False, 3, 2, LastStep(driver.now, 0.0))
