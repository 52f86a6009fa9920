"""The device pool's blocks: who owns which. The content stays with the executor."""

from collections import Counter
from collections.abc import Iterable, Sequence

from .plan import DeviceBlock


class BlockStore:
    """Free and owned blocks; `free + owned == total`, always. Freed blocks are reused newest first."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._free = [DeviceBlock(block) for block in reversed(range(num_blocks))]

    @property
    def num_free(self) -> int:
        return len(self._free)

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold `num_tokens` tokens."""
        return -(-num_tokens // self.block_size)

    def can_allocate(self, count: int) -> bool:
        return count <= len(self._free)

    def allocate(self, count: int) -> list[DeviceBlock]:
        """Take `count` free blocks; ask `can_allocate` first."""
        assert self.can_allocate(count), f"{count} blocks asked, {len(self._free)} free"
        cut = len(self._free) - count
        taken, self._free[cut:] = self._free[cut:][::-1], []
        return taken

    def release(self, blocks: Sequence[DeviceBlock]) -> None:
        """Give back blocks. As if serial, they may be allocated again for the same plan."""
        self._free.extend(reversed(blocks))

    def check(self, owned: Iterable[DeviceBlock]) -> None:
        """Raise AssertionError unless every block is either free or owned, exactly once."""
        seen = Counter(self._free)
        seen.update(owned)
        twice = [block for block, count in seen.items() if count > 1]
        assert not twice, f"blocks held twice: {twice}"
        assert len(seen) == self.num_blocks, f"{self.num_blocks - len(seen)} of {self.num_blocks} blocks are lost"
