"""One pool's blocks: who owns which, and which full blocks can serve another sequence.

Both tiers are this one class: a sequence owns device blocks while it is resident and host blocks while it is preempted.
Only full blocks are shared, and a full block is never written again, so nothing is ever forked or copied on write. A
block without an owner keeps its content, and its place in the index, until it is allocated anew.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from .hashing import BlockHash

Block = TypeVar("Block", bound=int)


class Evicted(NamedTuple, Generic[Block]):
    """A cached block that was allocated anew; its content stands until the plan computes."""

    block: Block
    name: BlockHash


class Departures(Generic[Block]):
    """Owners that let go, one after the other, in thought only; linear in their blocks."""

    def __init__(self, owners: Sequence[int], keeping: frozenset[Block]) -> None:
        self._owners = owners
        self._keeping = keeping
        self._left: dict[Block, int] = {}  # owners that a block would have left
        self.num_freed = 0

    def add(self, table: Sequence[Block]) -> None:
        for block in table:
            left = self._left[block] = self._left.get(block, self._owners[block]) - 1
            if left == 0 and block not in self._keeping:
                self.num_freed += 1


class BlockStore(Generic[Block]):
    """Owners, index and free blocks of one pool; `free + owned == total`, always."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        """`blocks` are the pool's ids: 0, 1, 2 ..."""
        self._owners = [0] * len(blocks)  # sequences that hold the block
        self._index: dict[BlockHash, Block] = {}
        self._names: dict[Block, BlockHash] = {}  # the index, the other way round
        self._empty = list(reversed(blocks))
        self._cached: OrderedDict[Block, None] = OrderedDict()  # free but indexed, least recently used first
        self._hit: set[Block] = set()  # indexed blocks that served another sequence

    @property
    def num_free(self) -> int:
        return len(self._empty) + len(self._cached)

    def __contains__(self, name: BlockHash) -> bool:
        return name in self._index

    def lookup(self, names: Sequence[BlockHash]) -> list[Block]:
        """The blocks that hold the longest indexed prefix of the chain."""
        found = []
        for name in names:
            block = self._index.get(name)
            if block is None:
                break
            found.append(block)
        return found

    def can_allocate(self, count: int, *, sharing: Sequence[Block] = ()) -> bool:
        """Whether `count` blocks are free beside those of `sharing`, which are about to be shared."""
        return count + sum(not self._owners[block] for block in sharing) <= self.num_free

    def share(self, blocks: Sequence[Block]) -> None:
        """Become one more owner of indexed blocks."""
        self._hit.update(blocks)
        for block in blocks:
            self._cached.pop(block, None)
            self._owners[block] += 1

    def allocate(self, count: int) -> tuple[list[Block], list[Evicted[Block]]]:
        """Own `count` free blocks, empty ones first, then what was cached longest ago; ask `can_allocate` first.

        Also returns what was evicted although it had been hit.
        """
        assert self.can_allocate(count), f"{count} blocks asked, {self.num_free} free"
        taken: list[Block] = []
        evicted: list[Evicted[Block]] = []
        for _ in range(count):
            block = self._empty.pop() if self._empty else self._evict(evicted)
            self._owners[block] = 1
            taken.append(block)
        return taken, evicted

    def release(self, blocks: Sequence[Block]) -> None:
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

    def index(self, block: Block, name: BlockHash) -> None:
        """An owned block is full and its content known: others may share it. The first of equal blocks serves."""
        if name not in self._index:
            self._index[name] = block
            self._names[block] = name

    def departures(self, *, keeping: Sequence[Block] = ()) -> "Departures[Block]":
        """To find out what would be free if owners let go; the blocks of `keeping` do not count."""
        return Departures(self._owners, frozenset(keeping))

    def check(self, held: Iterable[Block]) -> None:
        """Raise AssertionError unless owners are those of `held`, and every other block is free exactly once."""
        counts = Counter(held)
        owners = {block: count for block, count in enumerate(self._owners) if count}
        assert owners == counts, f"owners {owners} are not those that hold blocks: {counts}"
        free: list[int] = [*self._empty, *self._cached]
        assert sorted([*free, *owners]) == list(range(len(self._owners))), "a block is lost, or held and free"
        assert self._names == {block: name for name, block in self._index.items()}
        assert all(block in self._names for block in self._cached), "cached, but not in the index"
        assert not any(block in self._names for block in self._empty), "in the index, but empty"

    def _evict(self, evicted: list[Evicted[Block]]) -> Block:
        block, _ = self._cached.popitem(last=False)
        name = self._names.pop(block)
        del self._index[name]
        if block in self._hit:
            self._hit.discard(block)
            evicted.append(Evicted(block, name))
        return block
