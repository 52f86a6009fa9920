"""Plans that no scheduler may send: the session ends as INVALID_ARGUMENT, and the next one computes as ever."""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from jetway.runtime.executor.simulated import SimulatedBehaviour
from jetway.runtime.executor.wire import EPOCH_KEY, plan_to_proto
from jetway.v1 import common_pb2, executor_pb2
from tests.runtime.executor.driving import Job, generate, make_plan, make_simulated, make_start
from tests.runtime.executor.loopback import first_plan, open_session, serving
from tests.support.random_messages import messages

NUM_PLANS = 600
FIRST = plan_to_proto(first_plan())
SECOND = plan_to_proto(  # a good one after the first
    make_plan(
        2,
        copies_out=[(4, 0)],
        copies_in=[(0, 9)],
        starts=[make_start(1, [6, 7, 8, 9, 10], [6, 7])],
        grow=[(0, 8)],
        rows=[(0, 1), (1, 5)],
    )
)


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[grpc.Channel]:
    # Its oracle calls a wrong context a failure of the engine; here plans may be right in form and wrong in that.
    with serving(make_simulated(SimulatedBehaviour(verify_kv=False)), tmp_path) as channel:
        yield channel


def test_malformed_plans_end_their_session_by_name(channel: grpc.Channel) -> None:
    run: Any = channel.stream_stream("/jetway.v1.Executor/Run")
    outcomes: Counter[str] = Counter()
    for epoch, plan in enumerate(messages(random.Random("plans"), SECOND, NUM_PLANS), start=1):
        plans = iter([FIRST.SerializeToString(), plan])
        call = run(plans, metadata=((EPOCH_KEY, str(epoch)),), timeout=10.0)
        try:
            outcomes[f"{len(list(call))} results"] += 1
        except grpc.RpcError as error:
            outcomes[error.code().name] += 1

    assert set(outcomes) == {"2 results", "INVALID_ARGUMENT"}, outcomes
    session = open_session(channel, NUM_PLANS + 1)
    [expected] = generate(make_simulated(), [Job([1, 2, 3], 1)])
    assert session.run(first_plan()).tokens == expected
    session.close()


def test_epochs_that_are_no_numbers_are_refused_by_name(channel: grpc.Channel) -> None:
    run: Any = channel.stream_stream("/jetway.v1.Executor/Run")
    for epoch in ("", "x", "-1", "1.5", "1e3", "0x10", " "):
        with pytest.raises(grpc.RpcError) as caught:
            list(run(iter([]), metadata=((EPOCH_KEY, epoch),), timeout=10.0))
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_nonsense_to_describe_is_refused_or_answered(channel: grpc.Channel) -> None:
    describe: Any = channel.unary_unary("/jetway.v1.Executor/Describe")
    good = common_pb2.EngineDescription.FromString(describe(b""))
    outcomes: Counter[str] = Counter()
    for message in messages(random.Random("describe"), executor_pb2.DescribeRequest(), NUM_PLANS):
        try:
            assert common_pb2.EngineDescription.FromString(describe(message)) == good
            outcomes["OK"] += 1
        except grpc.RpcError as error:
            outcomes[error.code().name] += 1
    assert set(outcomes) == {"OK", "INVALID_ARGUMENT"}, outcomes
