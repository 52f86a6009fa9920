"""What a start finds in the two tiers, and that no copy of one plan overwrites the source of another."""

from typing import Any

from jetway.scheduler.classes import ServiceClass
from jetway.scheduler.kv_cache import KvCache
from jetway.scheduler.sequence import Sequence
from tests.support.scheduling import make_engine, make_sequence


def make_cache(*, num_blocks: int = 8, num_host_blocks: int = 8) -> KvCache:
    return KvCache(make_engine(num_blocks=num_blocks, num_host_blocks=num_host_blocks), write_through=False)


def load(cache: KvCache, sequence: Sequence) -> None:
    found = cache.find(sequence)
    cache.hold(found)
    cache.load(sequence, found, cache.blocks_for(len(sequence.tokens)))


def compute(cache: KvCache, sequence: Sequence, computed: int) -> None:
    """Load the sequence as a start does, and compute and commit its first `computed` tokens."""
    load(cache, sequence)
    sequence.computed = computed
    cache.publish(sequence, computed // cache.block_size)


def preempt(cache: KvCache, sequence: Sequence) -> None:
    cache.save(sequence)
    cache.unload(sequence)


def test_a_resume_skips_what_still_sits_on_the_device() -> None:
    """The full blocks are found where they were; only the partial tail is copied back."""
    cache = make_cache()
    sequence = make_sequence("a", prompt_len=11)
    compute(cache, sequence, 10)
    first, second, third = sequence.blocks
    preempt(cache, sequence)
    assert list(cache.take_copies().out.values()) == [first, second, third]
    cache.begin_plan()
    found = cache.find(sequence)
    assert (found.device, found.host, found.computed) == ([first, second], [], 10)
    cache.hold(found)
    cache.load(sequence, found, 3)
    assert len(cache.take_copies().into) == 1
    assert (sequence.computed, sequence.blocks[:2]) == (10, [first, second])


def test_what_the_device_has_lost_comes_from_the_host() -> None:
    cache = make_cache(num_blocks=3)
    sequence, other = make_sequence("a", prompt_len=11), make_sequence("b", prompt_len=12)
    compute(cache, sequence, 10)
    table = list(sequence.blocks)
    preempt(cache, sequence)
    saved = {device: host for host, device in cache.take_copies().out.items()}
    compute(cache, other, 12)
    cache.unload(other)
    cache.begin_plan()
    load(cache, sequence)
    assert sequence.computed == 10
    assert cache.take_copies().into == [(saved[old], new) for old, new in zip(table, sequence.blocks, strict=True)]


def test_a_host_block_that_is_copied_in_is_not_copied_over_by_the_same_plan() -> None:
    """Copies out run first: a host block that a resume reads stays owned until the next plan."""
    cache = make_cache(num_blocks=8, num_host_blocks=2)
    resumed, victim = make_sequence("a", prompt_len=8), make_sequence("b", prompt_len=8)
    compute(cache, victim, 8)
    compute(cache, resumed, 7)
    preempt(cache, resumed)
    cache.take_copies()
    cache.begin_plan()
    load(cache, resumed)
    preempt(cache, victim)
    copies = cache.take_copies()
    assert set(copies.out).isdisjoint({host for host, _ in copies.into})
    assert victim.saved is not None
    assert len(victim.saved.held) < 2, "the host was full in this plan"
    cache.begin_plan()
    assert cache.num_free_host_blocks == 2 - len(victim.saved.held)


def test_a_tail_is_used_only_right_behind_the_blocks_that_it_followed() -> None:
    """Another sequence has computed further than this one had: its full block replaces the saved tail."""
    cache = make_cache()
    sequence, further = (
        make_sequence("a", prompt_len=12, prefix="shared", prefix_len=8),
        make_sequence("b", prompt_len=9, prefix="shared", prefix_len=8),
    )
    compute(cache, sequence, 6)
    preempt(cache, sequence)
    compute(cache, further, 9)
    found = cache.find(sequence)
    assert (found.computed, found.tail) == (8, None)


def test_a_full_host_saves_the_front_and_never_a_tail_without_it() -> None:
    cache = make_cache(num_host_blocks=1)
    sequence = make_sequence("a", prompt_len=11)
    compute(cache, sequence, 10)
    preempt(cache, sequence)
    assert sequence.saved is not None
    assert (len(sequence.saved.blocks), sequence.saved.tail) == (1, None)


def test_without_a_host_nothing_is_saved() -> None:
    cache = make_cache(num_host_blocks=0)
    sequence = make_sequence("a", prompt_len=3)
    compute(cache, sequence, 3)
    preempt(cache, sequence)
    assert sequence.saved is not None
    assert sequence.saved.held == []
    assert cache.take_copies().out == {}


def test_shared_blocks_are_saved_once_and_stay_while_one_is_preempted() -> None:
    cache = make_cache()
    one, two = (
        make_sequence("a", prompt_len=9, prefix="shared", prefix_len=8),
        make_sequence("b", prompt_len=9, prefix="shared", prefix_len=8),
    )
    compute(cache, one, 9)
    compute(cache, two, 9)
    preempt(cache, one)
    preempt(cache, two)
    assert len(cache.take_copies().out) == 2 + 1 + 1, "two shared blocks, two tails"
    cache.forget(one)
    assert cache.num_free_host_blocks == 8 - 3
    cache.forget(two)
    assert cache.num_free_host_blocks == 8


def test_an_evicted_block_moves_to_the_host_only_if_it_was_hit() -> None:
    cache = make_cache(num_blocks=4)
    hit, again, never = (
        make_sequence("a", prompt_len=5, prefix="shared", prefix_len=4),
        make_sequence("b", prompt_len=5, prefix="shared", prefix_len=4),
        make_sequence("c", prompt_len=5),
    )
    for sequence in (hit, again, never):
        compute(cache, sequence, 5)
        cache.unload(sequence)
    assert cache.find(again).computed == 4
    big = make_sequence("big", prompt_len=16)
    shared_block = cache.find(again).device[0]
    compute(cache, big, 16)
    assert list(cache.take_copies().out.values()) == [shared_block]
    cache.unload(big)
    found = cache.find(again)
    assert (found.device, len(found.host), found.computed) == ([], 1, 4)
    assert cache.find(never).computed == 0


def test_an_offloaded_block_is_owned_while_it_is_copied_in() -> None:
    """Nobody pinned it, so only the copy itself keeps the same plan from copying something else over it."""
    cache = make_cache(num_blocks=4, num_host_blocks=1)
    first, again, victim = (
        make_sequence("a", prompt_len=5, prefix="shared", prefix_len=4),
        make_sequence("b", prompt_len=5, prefix="shared", prefix_len=4),
        make_sequence("c", prompt_len=7),
    )
    for sequence in (first, again, make_sequence("big", prompt_len=16)):
        compute(cache, sequence, len(sequence.tokens))
        cache.unload(sequence)
    compute(cache, victim, 7)
    cache.take_copies()
    cache.begin_plan()
    load(cache, again)
    preempt(cache, victim)
    copies = cache.take_copies()
    assert (len(copies.into), copies.out) == (1, {})
    cache.begin_plan()
    preempt(cache, again)
    assert cache.num_free_host_blocks == 0


def test_tenants_find_each_others_blocks_only_where_their_class_allows_it() -> None:
    """Timing would tell one tenant what another has asked."""
    for share_prefix, cached in [(False, 0), (True, 8)]:
        cache = make_cache()
        service_class = ServiceClass(share_prefix=share_prefix)
        shared: dict[str, Any] = {"prompt_len": 9, "prefix": "shared", "prefix_len": 8, "service_class": service_class}
        compute(cache, make_sequence("a", tenant="a", **shared), 9)
        assert cache.find(make_sequence("b", tenant="b", **shared)).computed == cached
        assert cache.find(make_sequence("c", tenant="a", **shared)).computed == 8


def test_what_a_start_will_copy_in_is_owned_before_victims_are_saved() -> None:
    """An offloaded prefix that nobody pins: saving a victim first would copy over it."""
    cache = make_cache(num_blocks=4, num_host_blocks=1)
    first, again, victim = (
        make_sequence("a", prompt_len=5, prefix="shared", prefix_len=4),
        make_sequence("b", prompt_len=5, prefix="shared", prefix_len=4),
        make_sequence("c", prompt_len=7),
    )
    for sequence in (first, again, make_sequence("big", prompt_len=16)):
        compute(cache, sequence, len(sequence.tokens))
        cache.unload(sequence)
    compute(cache, victim, 7)
    cache.take_copies()
    cache.begin_plan()
    found = cache.find(again)
    cache.hold(found)
    preempt(cache, victim)
    cache.load(again, found, 2)
    copies = cache.take_copies()
    assert ([host for host, _ in copies.into], copies.out) == (found.host, {})


def test_two_offloads_of_one_plan_never_go_to_one_host_block() -> None:
    """The second takes the block of the first, which nobody pins: only the last copy is made."""
    cache = KvCache(make_engine(num_blocks=8, num_host_blocks=1), write_through=True)
    sequence = make_sequence("a", prompt_len=13)
    compute(cache, sequence, 12)
    copies = cache.take_copies()
    assert list(copies.out.items()) == [(0, sequence.blocks[2])]
    cache.unload(sequence)
