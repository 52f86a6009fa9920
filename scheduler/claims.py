"""Full blocks that a running sequence is about to compute: another that needs one waits instead of computing it too."""

from .hashing import BlockHash
from .sequence import Sequence


class Claims:
    """Who computes which block. A claim lasts until the block is in the index or its claimant leaves the device."""

    def __init__(self) -> None:
        self._claimants: dict[BlockHash, Sequence] = {}

    def __contains__(self, name: BlockHash) -> bool:
        return name in self._claimants

    def awaited(self, names: list[BlockHash]) -> BlockHash | None:
        """The last of the leading names that are claimed: whoever needs `names` had better wait for it. None: compute."""
        last = None
        for name in names:
            if name not in self._claimants:
                break
            last = name
        return last

    def claim(self, sequence: Sequence, names: list[BlockHash]) -> None:
        """`sequence` computes these blocks; what another has claimed before stays with it."""
        for name in names:
            self._claimants.setdefault(name, sequence)

    def settle(self, name: BlockHash) -> bool:
        """The block is in the index. Whether it was claimed."""
        return self._claimants.pop(name, None) is not None

    def give_up(self, sequence: Sequence) -> list[BlockHash]:
        """The sequence leaves the device: the blocks that it had claimed and will not compute now."""
        names = [name for name in sequence.hashes if self._claimants.get(name) is sequence]
        for name in names:
            del self._claimants[name]
        return names
