"""Keys by their hashes."""

import hashlib

import pytest

from jetway.runtime.errors import Unauthenticated
from jetway.runtime.gateway.auth import ApiKey, KeyRing
from jetway.runtime.gateway.placement import Caller

ACME = Caller(tenant="acme", default_class="batch")
OTHER = Caller(tenant="other")
RING = KeyRing(
    [
        ApiKey("acme", hashlib.sha256(b"sk-acme").hexdigest(), ACME),
        ApiKey("other", hashlib.sha256("sk-öther".encode()).hexdigest(), OTHER),
    ]
)


@pytest.mark.parametrize(
    ("authorization", "caller"), [("Bearer sk-acme", ACME), ("bearer  sk-acme ", ACME), ("Bearer sk-öther", OTHER)]
)
def test_a_key_names_its_caller_whatever_the_tenant_header_says(authorization: str, caller: Caller) -> None:
    assert RING.caller(authorization, "somebody else") == caller


@pytest.mark.parametrize(
    "authorization", [None, "", "sk-acme", "Basic sk-acme", "Bearer", "Bearer sk-acm", "Bearer sk-acmee"]
)
def test_without_a_known_key_nobody_calls(authorization: str | None) -> None:
    with pytest.raises(Unauthenticated) as error:
        RING.caller(authorization, None)
    assert "acm" not in error.value.message.replace("API", "")


def test_without_keys_everyone_is_welcome_and_names_the_tenant() -> None:
    assert KeyRing([]).caller(None, "acme") == Caller(tenant="acme", is_admin=True)
    assert KeyRing([]).caller("Bearer anything", None) == Caller(tenant="", is_admin=True)
