"""What an executor's process does with its engine, alone or as one of several ranks, which end in order together."""

import signal
from collections.abc import Callable

from jetway.runtime.post import STOP_GRACE_S, Post
from jetway.scheduler.plan import EngineDescription

from .base import Engine
from .follower import follow
from .leader import Followers, Leader, NoFollowers
from .ranks import Ranks
from .server import ExecutorServer


def run(engine: Engine, post: Post) -> None:
    """Serve until SIGTERM, or do what rank 0 does until it ends. Raises EngineFailed: then all ranks have to go."""
    ranks = post.ranks
    if ranks is None:
        _serve(engine, post, NoFollowers)
        return
    if ranks.rank == 0:
        leader = Leader(ranks)
        _serve(engine, post, leader.new_session).wait_until_idle()
        leader.end()
    else:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # rank 0 says when
        follow(engine, ranks)
    ranks.leave()


def _serve(engine: Engine, post: Post, new_followers: Callable[[], Followers]) -> ExecutorServer:
    """Until SIGTERM. The server has stopped then, but a step may still be on the device."""
    step_limit_s, beat = post.config.hang_timeout_s, post.lifeline.beat
    server = ExecutorServer(engine, post.address, step_limit_s=step_limit_s, beat=beat, new_followers=new_followers)
    server.start()
    signal.signal(signal.SIGTERM, lambda number, frame: server.interrupt())
    post.lifeline.announce(_facts(engine.describe(), post.ranks))
    try:
        server.wait()
    finally:
        server.stop(STOP_GRACE_S)
    return server


def _facts(engine: EngineDescription, ranks: Ranks | None) -> dict[str, str]:
    """What the user is told."""
    device = f"{engine.num_device_blocks} blocks of {engine.block_size} tokens"
    pool = f"{device}, and {engine.num_host_blocks} in the host pool"
    return {"engine": engine.kind, "pool": pool} | ({} if ranks is None else {"ranks": str(ranks.size)})
