"""Errors survive the way from the scheduler to the gateway."""

import pytest

from jetway.runtime.errors import EDGES, Internal, JetwayError
from jetway.runtime.wire import error_from_proto, error_to_proto
from jetway.v1 import common_pb2


@pytest.mark.parametrize("cls", EDGES, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize(("param", "retry_after_s"), [(None, None), ("prompt", 7)], ids=["bare", "full"])
def test_error_that_is_sent_is_the_error_that_comes(
    cls: type[JetwayError], param: str | None, retry_after_s: int | None
) -> None:
    error = error_from_proto(error_to_proto(cls("why", param=param, retry_after_s=retry_after_s)))

    assert type(error) is cls
    assert (error.message, error.param, error.retry_after_s) == ("why", param, retry_after_s)


def test_code_of_the_future_is_internal() -> None:
    error = error_from_proto(common_pb2.Error(code=99, message="new"))  # type: ignore[arg-type]  # no such code yet

    assert type(error) is Internal
