"""What a rank other than 0 does: it has no session, and launches what rank 0 launches."""

from collections import deque

from jetway.runtime.errors import EngineFailed

from .base import Engine
from .counts import PlanError
from .leader import Decisions, End, Launch
from .rank_messages import receive
from .ranks import Channel, Ranks
from .steps import Launched, Slots


def follow(engine: Engine, ranks: Ranks) -> None:
    """Do what rank 0 does, until it ends. Raises EngineFailed when it is gone, a step fails or the ranks disagree."""
    session = FollowedSession(engine)
    while not isinstance(order := receive(ranks, 0, Channel.PLANS), End):
        assert isinstance(order, Launch)
        if order.plan.step == 1:
            session.finish()
            session = FollowedSession(engine)
        session.launch(order)
    session.finish()


class FollowedSession:
    """One session of rank 0's, on this rank's part of the engine."""

    def __init__(self, engine: Engine) -> None:
        self._slots = Slots(engine)
        self._launched = deque[Launched]()
        self._decisions = Decisions()

    def launch(self, order: Launch) -> None:
        """Raises EngineFailed."""
        while self._decisions.num_results < order.num_collected:
            self._collect()
        if self._decisions.digest != order.digest:
            raise EngineFailed(f"this rank and rank 0 disagree on what was sampled before step {order.plan.step}")
        try:
            step = self._slots.begin(order.plan)
        except PlanError as error:
            raise EngineFailed(f"this rank and rank 0 disagree: {error}") from error
        self._launched.append(self._slots.launch(step))

    def finish(self) -> None:
        """Collect what is left. Raises EngineFailed."""
        while self._launched:
            self._collect()

    def _collect(self) -> None:
        self._decisions.add(self._slots.collect(self._launched.popleft()))
