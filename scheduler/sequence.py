"""One generated continuation while it lives in the scheduler."""

from collections.abc import Sequence as Items
from dataclasses import InitVar, dataclass, field

from .classes import ServiceClass
from .hashing import BlockHash, block_hash, root_hash
from .plan import DeviceBlock, HostBlock, Slot
from .request import Request, SequenceId
from .state import Move, State, after

Seniority = tuple[int, int]
Rank = tuple[int, int, int]

LANE = 0  # the standing of a sequence in the aged lane: before every level


@dataclass(slots=True)
class Saved:
    """What the host tier holds, pinned, of a preempted sequence: its first full blocks, then the partial one."""

    blocks: list[HostBlock] = field(default_factory=list)
    tail: HostBlock | None = None  # set only when every full block was saved
    num_tokens: int = 0  # that these hold

    @property
    def held(self) -> list[HostBlock]:
        return self.blocks if self.tail is None else [*self.blocks, self.tail]


@dataclass(slots=True, eq=False, repr=False, kw_only=True)
class Sequence:
    """Mutable, owned by the scheduler. `computed` and the gap to `known` are all there is to prefill and decode.

    Intervals, in tokens:
        [0, prompt_len)             the prompt
        [prompt_len, len(tokens))   generated, value known here
        [len(tokens), known)        sampled by plans in flight, value not yet committed
        [0, computed)               KV written by the plans made so far

    and in blocks, `hashes[i]` naming blocks[i]:
        [0, num_indexed)            in the prefix index: shared from it, or committed and put there
        [num_indexed, len(hashes))  full, value known; computed or about to be
    """

    request: Request
    id: SequenceId
    order: int  # arrival number: ties never compare anything else
    arrival: float  # seconds
    service_class: InitVar[ServiceClass]
    max_output: InitVar[int]
    generated: InitVar[Items[int]] = ()  # before this scheduler knew of it

    # Its life.
    state: State = State.WAITING
    tokens: list[int] = field(init=False)
    prompt_len: int = field(init=False)
    max_len: int = field(init=False)  # tokens at most
    known: int = field(init=False)  # tokens, those in flight included
    computed: int = 0
    in_flight: int = 0  # rows of plans without a result
    last_sampled: int = 0  # step of the last row that samples
    high_water: int = 0  # most tokens ever computed: what a start computes below it, it computes again
    started_at: float | None = None  # seconds, for the first time
    first_token_at: float | None = None  # seconds
    last_token_at: float | None = None

    # Its rank.
    level: int = field(init=False)
    standing: int = field(init=False)  # its level, or LANE while it runs there
    aged_at: float | None = None  # since when it may enter it
    first_start: int | None = None  # number of its first start; kept over preemptions
    num_preemptions: int = 0
    last_preempted: int | None = None  # step
    itl_objective_s: float | None = field(init=False)
    expected_wait_s: float | None = None  # for the first start, as estimated on arrival

    # Its place in the queues.
    waits_since: float = field(init=False)  # seconds: its arrival, or when it was displaced last
    place: int = field(init=False)  # among its tenant's, after priority; a queue timeout gives a later one
    ticket: int = 0  # of its place in a queue; an older one is void
    num_alarms: int = 0  # that are set for it
    parked_for: BlockHash | None = None  # waits beside its queue for this block

    # Its blocks.
    slot: Slot | None = None
    blocks: list[DeviceBlock] = field(default_factory=list)
    salts: tuple[str, ...] = field(init=False)  # of `hashes`: tenants never share, unless their class lets them
    hashes: list[BlockHash] = field(default_factory=list)  # of the full blocks of `tokens`, as far as they were needed
    num_indexed: int = 0
    num_cached_tokens: int = 0  # prompt tokens that the first start found in the prefix cache
    saved: Saved | None = None  # while preempted with swap
    owed_tokens: int = 0  # while preempted: once computed, not saved, to be computed again

    def __post_init__(self, service_class: ServiceClass, max_output: int, generated: Items[int]) -> None:
        self.tokens = [*self.request.prompt, *generated]
        self.known = len(self.tokens)
        self.prompt_len = len(self.request.prompt)
        self.max_len = self.prompt_len + max_output
        self.level = self.standing = service_class.level
        self.itl_objective_s = service_class.itl_objective_s
        self.place = self.order
        self.waits_since = self.arrival
        tenant = self.request.tenant
        self.salts = ("class", service_class.name) if service_class.share_prefix else ("tenant", tenant)

    @property
    def gap(self) -> int:
        """Tokens to compute before the next one can be sampled: 1 is a decode, more is a prefill."""
        return self.known - self.computed

    @property
    def unresolved(self) -> int:
        """Tokens sampled by plans in flight."""
        return self.known - len(self.tokens)

    @property
    def output_limit(self) -> int:
        """Tokens to generate at most."""
        return self.max_len - self.prompt_len

    @property
    def num_output(self) -> int:
        return len(self.tokens) - self.prompt_len

    def plannable(self, latest_step: int) -> bool:
        """True while another token is wanted and its input is known, or will be when the executor comes to this step.

        That is so for at most one sampled token in flight (DESIGN section 5), of `latest_step` or before.
        """
        if self.known == self.max_len:
            return False
        unresolved = self.known - len(self.tokens)  # spelled out: every plan asks every resident
        return unresolved == 0 or (unresolved == 1 and self.last_sampled <= latest_step)

    @property
    def queued_s(self) -> float | None:
        """From arrival to the first start."""
        return None if self.started_at is None else self.started_at - self.arrival

    @property
    def seniority(self) -> Seniority:
        """Of a sequence that has started: its place inside its level, never equal to another's."""
        assert self.first_start is not None
        return (self.first_start, self.order)

    @property
    def rank(self) -> Rank:
        """Of a sequence that has started: lower is better, never equal. Better ranks take from worse ones only."""
        assert self.first_start is not None
        return (self.standing, self.first_start, self.order)

    def extend_hashes(self, engine_id: str, block_size: int) -> None:
        """Name every full block of the tokens known by value. Tenants' names differ unless their class lets them meet."""
        for begin in range(len(self.hashes) * block_size, len(self.tokens) - block_size + 1, block_size):
            parent = self.hashes[-1] if self.hashes else root_hash(engine_id, *self.salts)
            self.hashes.append(block_hash(parent, self.tokens[begin : begin + block_size]))

    def forget_executor(self) -> None:
        """The executor is gone, and all that stood there: only tokens known by value are left."""
        self.in_flight = 0
        self.known = len(self.tokens)
        self.saved = None
        self.hashes = []
        self.last_preempted = None

    def move(self, move: Move) -> None:
        self.state = after(str(self.id), self.state, move)

    def __repr__(self) -> str:
        where = f" slot={self.slot}" if self.slot is not None else ""
        flight = f"+{self.unresolved}" if self.unresolved else ""
        return (
            f"<{self.id} {self.state.name} {self.computed}/{len(self.tokens)}{flight} blocks={len(self.blocks)}{where}>"
        )
