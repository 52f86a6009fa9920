"""Full blocks that running sequences are about to compute: another that needs one may wait instead of computing it too.

It waits only for an equal or better level: such a claimant is given budget before it in every step, and is displaced for
nobody that would not displace it too. A better one computes the block itself, even if the other is in the aged lane,
which prefills slowly beside better levels; then the block has two claimants, and the first to publish it serves all.
"""

from .hashing import BlockHash
from .sequence import Sequence


class Claims:
    """Who computes which block. A claim lasts until the block is in the index or its claimant leaves the device."""

    def __init__(self) -> None:
        self._claimants: dict[BlockHash, list[Sequence]] = {}

    def is_awaitable(self, name: BlockHash, level: int) -> bool:
        """Whether somebody of this level or a better one computes the block."""
        return any(claimant.level <= level for claimant in self._claimants.get(name, ()))

    def awaited(self, names: list[BlockHash], level: int) -> BlockHash | None:
        """The last of the leading names that are worth waiting for in this level. None: compute."""
        last = None
        for name in names:
            if not self.is_awaitable(name, level):
                break
            last = name
        return last

    def claim(self, sequence: Sequence, names: list[BlockHash]) -> None:
        """`sequence` computes these blocks."""
        for name in names:
            self._claimants.setdefault(name, []).append(sequence)

    def settle(self, name: BlockHash) -> bool:
        """The block is in the index. Whether it was claimed."""
        return self._claimants.pop(name, None) is not None

    def give_up(self, sequence: Sequence) -> list[BlockHash]:
        """The sequence leaves the device: the blocks that it had claimed and will not compute now."""
        names = [name for name in sequence.hashes if sequence in self._claimants.get(name, ())]
        for name in names:
            claimants = self._claimants[name]
            claimants.remove(sequence)
            if not claimants:
                del self._claimants[name]
        return names
