import grpc

from jetway.runtime import errors
from jetway.v1.common_pb2 import ErrorCode


def test_every_code_of_the_protocol_has_an_error() -> None:
    codes = {name.removeprefix("ERROR_CODE_") for name in ErrorCode.DESCRIPTOR.values_by_name} - {"UNSPECIFIED"}
    assert set(errors.BY_CODE) == codes


def test_only_what_ends_the_process_never_crosses_an_edge() -> None:
    assert set(errors.JetwayError.__subclasses__()) - set(errors.EDGES) == {errors.ConfigError, errors.Fenced}


def test_statuses_of_grpc_are_names_that_grpc_knows() -> None:
    names = {status.name for status in grpc.StatusCode}
    assert {edge.grpc for edge in errors.EDGES.values()} <= names
    assert {edge.kserve_grpc for edge in errors.EDGES.values()} <= names


def test_every_error_says_when_it_comes() -> None:
    assert all(cls.__doc__ for cls in errors.EDGES)
