"""Who yields when blocks run out.

One total order: blocks are taken only from worse ranks, and the worst itself yields. So the best rank always gets what
it needs, and since every admitted sequence fits the pool alone, it always finishes.
"""

from .residents import Residents
from .sequence import Sequence


def choose_victim(residents: Residents, taker: Sequence) -> Sequence:
    """The resident that gives its blocks so that `taker` can grow; `taker` itself when no rank is worse."""
    worst = residents.worst
    assert worst.rank >= taker.rank
    return worst
