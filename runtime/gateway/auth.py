"""API keys: who calls, which tenant pays, which classes are allowed. Only hashes are kept."""

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass

from jetway.runtime.errors import Unauthenticated

from .placement import Caller

SCHEME = "bearer "


@dataclass(frozen=True, slots=True)
class ApiKey:
    """One key, by the SHA-256 of its secret in hex, and what its holder may do."""

    name: str
    sha256: str
    caller: Caller


class KeyRing:
    """All keys. Without any, everyone is welcome, and says for whom in a header."""

    def __init__(self, keys: Sequence[ApiKey]) -> None:
        self._keys = [(bytes.fromhex(key.sha256), key) for key in keys]

    @property
    def is_empty(self) -> bool:
        return not self._keys

    def caller(self, authorization: str | None, tenant: str | None) -> Caller:
        """Who sends this `authorization` ("Bearer SECRET") and `tenant` header. Raises Unauthenticated.

        Where there are keys, the key alone names the tenant. Every key is compared, each in constant time, so that the
        time taken says nothing about any of them.
        """
        if self.is_empty:
            return Caller(tenant=tenant or "", is_admin=True)
        if authorization is None or not authorization.lower().startswith(SCHEME):
            raise Unauthenticated("an API key is needed: Authorization: Bearer KEY")
        digest = hashlib.sha256(authorization[len(SCHEME) :].strip().encode()).digest()
        found = [key for expected, key in self._keys if hmac.compare_digest(expected, digest)]
        if not found:
            raise Unauthenticated("this API key is not known here")
        return found[0].caller
