from unittest.mock import Mock

import pytest

from jetway.runtime.gateway.grpc_call import is_near


@pytest.mark.parametrize(
    ("peer", "near"),
    [
        ("ipv4:127.0.0.1:50000", True),
        ("ipv6:%5B::1%5D:50000", True),
        ("ipv4:192.0.2.1:50000", False),
        ("ipv6:%5B2001:db8::1%5D:50000", False),
    ],
)
def test_near_is_who_calls_over_loopback(peer: str, near: bool) -> None:
    assert is_near(Mock(peer=Mock(return_value=peer))) is near
