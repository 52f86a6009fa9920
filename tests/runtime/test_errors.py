from jetway.runtime import errors
from jetway.v1.common_pb2 import ErrorCode
from tests.conftest import ROOT


def test_the_documented_table_is_the_table_in_use() -> None:
    lines = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:6]] for line in lines if line.startswith("| ")][1:]
    assert rows == [
        [edge.code, edge.grpc, str(edge.http), edge.openai_type, "yes" if edge.retryable else "no"]
        for edge in errors.EDGES.values()
    ]


def test_every_code_of_the_protocol_has_an_error() -> None:
    codes = {name.removeprefix("ERROR_CODE_") for name in ErrorCode.DESCRIPTOR.values_by_name} - {"UNSPECIFIED"}
    assert set(errors.BY_CODE) == codes


def test_only_a_config_error_never_crosses_an_edge() -> None:
    assert set(errors.JetwayError.__subclasses__()) - set(errors.EDGES) == {errors.ConfigError}
