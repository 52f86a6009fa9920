"""Names for full blocks: chained 128-bit hashes, so that equal names mean equal tokens from the very first on."""

from array import array
from collections.abc import Sequence
from hashlib import blake2b
from typing import NewType

BlockHash = NewType("BlockHash", bytes)


def root_hash(*salts: str) -> BlockHash:
    """Where a chain starts. Chains of different salts (engine, tenant) never meet."""
    digest = blake2b(digest_size=16)
    for salt in salts:
        encoded = salt.encode()
        digest.update(len(encoded).to_bytes(4, "little") + encoded)
    return BlockHash(digest.digest())


def block_hash(parent: BlockHash, tokens: Sequence[int]) -> BlockHash:
    """The name of the block that holds `tokens` after everything that `parent` names."""
    return BlockHash(blake2b(array("q", tokens).tobytes(), digest_size=16, key=parent).digest())
