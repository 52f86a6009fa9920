"""Where each sequence's KV stands: the device tier, the host tier, and the copies between them.

Preempt with swap = copy to the host what the host lacks, pin it there, release the device. Resume = an ordinary start:
it finds device blocks, then host blocks, then computes the rest. So recompute is "nothing pinned", and a resume skips
what still sits on the device. The order inside a plan (copies out, copies in, compute) is what makes this safe:

* a device block released here may be allocated again for the same plan, since its copy out comes first;
* a host block that is copied in stays owned until the next plan, since copies out come first.
"""

from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from typing import NamedTuple

from .blocks import BlockStore, Departures
from .hashing import BlockHash
from .plan import DeviceBlock, EngineDescription, HostBlock
from .sequence import Saved, Sequence


class Found(NamedTuple):
    """What a start need not compute: blocks on the device, then on the host, then perhaps a partial tail there."""

    device: list[DeviceBlock]
    host: list[HostBlock]
    tail: HostBlock | None
    computed: int  # tokens
    missing: list[BlockHash]  # the full blocks behind that, which have to be computed


@dataclass(slots=True)
class Copies:
    """Block copies of the plan in the making. What is copied out to the same place twice counts once, the last time."""

    out: dict[HostBlock, DeviceBlock] = field(default_factory=dict)
    into: list[tuple[HostBlock, DeviceBlock]] = field(default_factory=list)


class KvCache:
    """Two tiers of blocks and the tables of residents; see the module's docstring."""

    def __init__(self, engine: EngineDescription, *, write_through: bool) -> None:
        """With `write_through` full blocks are copied to the host as they fill, so that preempting copies only a tail."""
        self.block_size = engine.block_size
        self._write_through = write_through
        self._engine_id = engine.engine_id
        self._device = BlockStore([DeviceBlock(block) for block in range(engine.num_device_blocks)])
        self._host = BlockStore([HostBlock(block) for block in range(engine.num_host_blocks)])
        self._copies = Copies()
        self._cooling: list[HostBlock] = []  # copied in by the plan in the making; free from the next

    @property
    def num_free_device_blocks(self) -> int:
        return self._device.num_free

    @property
    def num_free_host_blocks(self) -> int:
        return self._host.num_free

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold `num_tokens` tokens."""
        return -(-num_tokens // self.block_size)

    def begin_plan(self) -> None:
        """The plan before has been sent: host blocks that it copied in are free."""
        self._host.release(self._cooling)
        self._cooling = []

    def take_copies(self) -> Copies:
        copies, self._copies = self._copies, Copies()
        return copies

    def find(self, sequence: Sequence) -> Found:
        """What a start of the sequence would find. The last token is always computed: its logits are wanted."""
        sequence.extend_hashes(self._engine_id, self.block_size)
        names = sequence.hashes[: (len(sequence.tokens) - 1) // self.block_size]
        device = self._device.lookup(names)
        host = self._host.lookup(names[len(device) :])
        num_full = len(device) + len(host)
        saved = sequence.saved
        if saved is not None and saved.tail is not None and num_full == len(saved.blocks):
            return Found(device, host, saved.tail, saved.num_tokens, [])
        return Found(device, host, None, num_full * self.block_size, names[num_full:])

    def can_load(self, found: Found, num_blocks: int, *, spare: int, num_freed: int = 0) -> bool:
        """Whether a table of `num_blocks` blocks could be had, leaving `spare` free, if `num_freed` more were free."""
        return self._device.can_allocate(num_blocks - len(found.device) + spare - num_freed, sharing=found.device)

    def departures(self, *, keeping: Items[DeviceBlock] = ()) -> Departures[DeviceBlock]:
        """To find out how many device blocks residents would free."""
        return self._device.departures(keeping=keeping)

    def hold(self, found: Found) -> None:
        """Own, until the next plan, the host blocks that a start will copy in: before any victim is saved over them."""
        self._host.share(found.host)
        self._cooling += found.host

    def load(self, sequence: Sequence, found: Found, num_blocks: int) -> None:
        """Give the sequence its table of `num_blocks` blocks, filled with what was found and is held."""
        self._device.share(found.device)
        fresh = self._allocate(num_blocks - len(found.device))
        sources = found.host if found.tail is None else [*found.host, found.tail]
        self._copies.into += zip(sources, fresh, strict=False)
        if sequence.saved is not None:
            self._cooling += sequence.saved.held
            sequence.saved = None
        sequence.blocks = found.device + fresh
        sequence.computed = found.computed
        sequence.num_indexed = len(found.device)

    def can_grow(self) -> bool:
        """Whether a block is free."""
        return self._device.can_allocate(1)

    def num_private(self, sequence: Sequence) -> int:
        """Blocks of a resident that no other holds: what leaving gives back, and has to be restored."""
        leaving = self._device.departures()
        leaving.add(sequence.blocks)
        return leaving.num_freed

    def num_unsaved(self, sequence: Sequence) -> int:
        """Blocks of a resident that the host lacks: what saving it would copy."""
        sequence.extend_hashes(self._engine_id, self.block_size)
        num_full, num_tail = divmod(sequence.computed, self.block_size)
        return sum(name not in self._host for name in sequence.hashes[:num_full]) + (num_tail > 0)

    def grow(self, sequence: Sequence) -> DeviceBlock:
        """Append a block to the sequence's table; ask `can_grow` first."""
        (block,) = self._allocate(1)
        sequence.blocks.append(block)
        return block

    def unload(self, sequence: Sequence) -> None:
        """Take the sequence's table; the content of its indexed blocks stays until they are allocated anew."""
        self._device.release(sequence.blocks)
        sequence.blocks = []
        sequence.computed = 0
        sequence.num_indexed = 0

    def save(self, sequence: Sequence) -> bool:
        """Pin what a resident has computed in the host tier, copying what is not there, as far as the host has room.

        Whether anything is there now. A token computed while its value is still in flight cannot be named; it is computed again.
        """
        sequence.extend_hashes(self._engine_id, self.block_size)
        saved = Saved()
        num_full, num_tail = divmod(min(sequence.computed, len(sequence.tokens)), self.block_size)
        for block, name in zip(sequence.blocks[:num_full], sequence.hashes[:num_full], strict=True):
            if there := self._host.lookup([name]):
                self._host.share(there)
                saved.blocks += there
            elif (host := self._copy_out(block)) is not None:
                self._host.index(host, name)
                saved.blocks.append(host)
            else:
                break
        else:
            if num_tail:
                saved.tail = self._copy_out(sequence.blocks[num_full])
        saved.num_tokens = len(saved.blocks) * self.block_size + (num_tail if saved.tail is not None else 0)
        sequence.saved = saved
        return bool(saved.held)

    def forget(self, sequence: Sequence) -> None:
        """Give up what was saved of a sequence that will not resume."""
        if sequence.saved is not None:
            self._host.release(sequence.saved.held)
            sequence.saved = None

    def publish(self, sequence: Sequence, num_full: int) -> list[BlockHash]:
        """The sequence's first `num_full` blocks are full and committed: index the new ones, and return their names."""
        sequence.extend_hashes(self._engine_id, self.block_size)
        new = slice(sequence.num_indexed, num_full)
        for block, name in zip(sequence.blocks[new], sequence.hashes[new], strict=True):
            self._device.index(block, name)
            if self._write_through:
                self._offload(block, name)
        sequence.num_indexed = num_full
        return sequence.hashes[new]

    def check(self, residents: list[Sequence], waiting: list[Sequence]) -> None:
        """Raise AssertionError unless both pools add up."""
        self._device.check(block for sequence in residents for block in sequence.blocks)
        pins = [block for sequence in waiting if sequence.saved for block in sequence.saved.held]
        self._host.check([*pins, *self._cooling])
        for sequence in residents:
            assert sequence.computed <= len(sequence.blocks) * self.block_size, f"{sequence} outgrew its blocks"
        for sequence in waiting:
            if saved := sequence.saved:
                assert self.blocks_for(saved.num_tokens) == len(saved.held), f"{sequence} counts wrong what is saved"
            assert not sequence.blocks and not sequence.computed, f"{sequence} waits and holds device blocks"

    def _allocate(self, count: int) -> list[DeviceBlock]:
        """Own free device blocks; what is evicted and was hit moves to the host, where there is room."""
        blocks, evicted = self._device.allocate(count)
        for block, name in evicted:
            self._offload(block, name)
        return blocks

    def _offload(self, block: DeviceBlock, name: BlockHash) -> None:
        """Copy a full block to the host unless it is there or nothing is free; nobody pins it."""
        if name not in self._host and (host := self._copy_out(block)) is not None:
            self._host.index(host, name)
            self._host.release([host])

    def _copy_out(self, block: DeviceBlock) -> HostBlock | None:
        """A host block, owned, that the plan copies the device block to; None when every host block is pinned."""
        if not self._host.can_allocate(1):
            return None
        (host,), _ = self._host.allocate(1)
        self._copies.out[host] = block
        return host
