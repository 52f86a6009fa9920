import gc

from jetway.runtime.garbage import ALL, PAUSES_PER_ALL, PAUSES_PER_YOUNG, YOUNG, Garbage, kept_out_of_steps


def test_python_collects_nothing_by_itself_and_looks_at_nothing_old() -> None:
    before = gc.get_freeze_count()
    with kept_out_of_steps():
        assert not gc.isenabled()
        assert gc.get_freeze_count() > before
        assert len(gc.get_objects()) < 1000
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_it_collects_now_and_then() -> None:
    collected: list[int] = []
    garbage = Garbage(collected.append)
    for _ in range(PAUSES_PER_YOUNG - 1):
        garbage.pause()
    assert collected == []
    garbage.pause()
    assert collected == [YOUNG]
    for _ in range(PAUSES_PER_ALL - PAUSES_PER_YOUNG):
        garbage.pause()
    assert collected == [YOUNG] * (PAUSES_PER_ALL // PAUSES_PER_YOUNG - 1) + [ALL]


def test_cycles_are_found() -> None:
    class Node:
        alive = 0

        def __init__(self) -> None:
            self.me = self
            Node.alive += 1

        def __del__(self) -> None:
            Node.alive -= 1

    garbage = Garbage()
    with kept_out_of_steps():
        for _ in range(1000):
            Node()
        assert Node.alive == 1000
        for _ in range(PAUSES_PER_YOUNG):
            garbage.pause()
        assert Node.alive == 0
