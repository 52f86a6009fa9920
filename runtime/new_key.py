"""`jetway key`: makes an API key. The server keeps its hash only."""

import hashlib
import secrets

import yaml

_NUM_BYTES = 32


def make(name: str) -> str:
    """The key on the first line, for the client; then what the server's configuration file says of it."""
    key = f"jw-{secrets.token_urlsafe(_NUM_BYTES)}"
    entry = {"keys": {name: {"sha256": hashlib.sha256(key.encode()).hexdigest()}}}
    return f"{key}\n\n{yaml.safe_dump(entry, allow_unicode=True)}"
