"""The device pool's blocks: who owns which, and which full blocks can serve another sequence.

Only full blocks are shared, and a full block is never written again, so nothing is ever forked or copied. A block
without an owner keeps its content, and its place in the index, until it is allocated anew.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence

from .hashing import BlockHash
from .plan import DeviceBlock


class BlockStore:
    """Owners, index and free blocks of one pool; `free + owned == total`, always."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._owners = [0] * num_blocks  # sequences that hold the block
        self._index: dict[BlockHash, DeviceBlock] = {}
        self._names: dict[DeviceBlock, BlockHash] = {}  # the index, the other way round
        self._empty = [DeviceBlock(block) for block in reversed(range(num_blocks))]
        self._cached: OrderedDict[DeviceBlock, None] = OrderedDict()  # free but indexed, least recently used first

    @property
    def num_free(self) -> int:
        return len(self._empty) + len(self._cached)

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold `num_tokens` tokens."""
        return -(-num_tokens // self.block_size)

    def lookup(self, hashes: Sequence[BlockHash]) -> list[DeviceBlock]:
        """The blocks that hold the longest indexed prefix of the chain."""
        found = []
        for name in hashes:
            block = self._index.get(name)
            if block is None:
                break
            found.append(block)
        return found

    def can_allocate(self, count: int, *, sharing: Sequence[DeviceBlock] = ()) -> bool:
        """Whether `count` blocks are free beside those of `sharing`, which are about to be shared."""
        return count + sum(not self._owners[block] for block in sharing) <= self.num_free

    def share(self, blocks: Sequence[DeviceBlock]) -> None:
        """Become one more owner of indexed blocks."""
        for block in blocks:
            self._cached.pop(block, None)
            self._owners[block] += 1

    def allocate(self, count: int) -> list[DeviceBlock]:
        """Own `count` free blocks, empty ones first, then what was cached longest ago; ask `can_allocate` first."""
        assert self.can_allocate(count), f"{count} blocks asked, {self.num_free} free"
        taken = []
        for _ in range(count):
            block = self._empty.pop() if self._empty else self._evict()
            self._owners[block] = 1
            taken.append(block)
        return taken

    def release(self, blocks: Sequence[DeviceBlock]) -> None:
        """Own them no more. As if serial, they may be allocated again for the same plan.

        The end of the chain is given back first, so that a prefix outlives what follows it.
        """
        for block in reversed(blocks):
            self._owners[block] -= 1
            if self._owners[block]:
                continue
            if block in self._names:
                self._cached[block] = None
            else:
                self._empty.append(block)

    def index(self, block: DeviceBlock, name: BlockHash) -> None:
        """An owned block has become full and computed: others may share it. The first of equal blocks serves."""
        if name not in self._index:
            self._index[name] = block
            self._names[block] = name

    def check(self, held: Iterable[DeviceBlock]) -> None:
        """Raise AssertionError unless owners are those of `held`, and every other block is free exactly once."""
        owners = Counter(held)
        assert [owners[DeviceBlock(block)] for block in range(self.num_blocks)] == self._owners, "owners do not add up"
        free = [*self._empty, *self._cached]
        assert sorted([*free, *owners]) == list(range(self.num_blocks)), "a block is lost or held and free"
        assert self._names == {block: name for name, block in self._index.items()}
        assert all(block in self._names for block in self._cached), "cached, but not in the index"
        assert not any(block in self._names for block in self._empty), "in the index, but empty"

    def _evict(self) -> DeviceBlock:
        block, _ = self._cached.popitem(last=False)
        del self._index[self._names.pop(block)]
        return block
