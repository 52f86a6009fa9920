"""Ctrl-C waits for the end of a held block, and is never lost."""

import signal

import pytest

from jetway.builder.interrupt import held_interrupts


def test_takes_effect_at_the_end() -> None:
    passed = []
    with pytest.raises(KeyboardInterrupt), held_interrupts():
        signal.raise_signal(signal.SIGINT)
        passed.append("goes on")
    assert passed == ["goes on"]


def test_goes_before_another_exception() -> None:
    with pytest.raises(KeyboardInterrupt), held_interrupts():
        signal.raise_signal(signal.SIGINT)
        raise RuntimeError("the block failed, too")


def test_without_ctrl_c_nothing_changes() -> None:
    handler = signal.getsignal(signal.SIGINT)
    with held_interrupts():
        pass
    with pytest.raises(ValueError, match="own"), held_interrupts():
        raise ValueError("own")
    assert signal.getsignal(signal.SIGINT) is handler
