"""`jetway status`: asks a gateway how it and the scheduler behind it stand, and shows it."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta

from google.protobuf.json_format import MessageToJson

from jetway.v1 import admin_pb2, scheduler_pb2

from .admin_client import Gateway
from .errors import Unavailable
from .settings import format_bytes

_CLEAR = "\x1b[H\x1b[2J"  # a terminal's screen
_WORTH_A_LINE_S = 1.0
_HEADER = (
    *("CLASS", "LEVEL", "WEIGHT", "RUNNING", "DISPLACED", "QUEUED REQUESTS", "QUEUED TOKENS"),
    *("OLDEST WAIT", "EXPECTED WAIT", "DEADLINE"),
)

Render = Callable[[admin_pb2.StatusResponse], str]


def show(gateway: Gateway, render: Render) -> None:
    """Raises what Gateway's calls raise."""
    print(render(gateway.status()), flush=True)


def watch(gateway: Gateway, render: Render, every_s: float, sleep: Callable[[float], None] = time.sleep) -> None:
    """Show it again and again, on a terminal in place, until Ctrl-C.

    Raises Unavailable when nothing answers at first; later it says so and asks on, for a lost gateway is replaced.
    """
    has_answered = False
    try:
        while True:
            try:
                text = render(gateway.status())
            except Unavailable as error:
                if not has_answered:
                    raise
                print(error.message, file=sys.stderr)
            else:
                has_answered = True
                print(_CLEAR + text if sys.stdout.isatty() else text, flush=True)
            sleep(every_s)
    except KeyboardInterrupt:
        pass


def as_json(status: admin_pb2.StatusResponse) -> str:
    """One line, as protobuf's JSON mapping has it: 64-bit numbers are strings."""
    return MessageToJson(
        status, indent=None, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


def as_text(status: admin_pb2.StatusResponse) -> str:
    uptime = timedelta(seconds=int(status.uptime_s))
    lines = [f"jetway {status.version} · {status.model} · up {uptime} · {status.num_live_requests} live requests"]
    if status.roles:
        lines += ["", *_table(_roles(status.roles))]
    if not status.HasField("scheduler"):
        return "\n".join([*lines, "the scheduler does not answer"])
    return "\n".join([*lines, "", *_table(_classes(status.scheduler)), "", *_pairs(_figures(status.scheduler))])


def _roles(roles: Iterable[admin_pb2.RoleStatus]) -> Iterator[Sequence[str]]:
    yield "ROLE", "PID", "EPOCH", "RESTARTS", "UPTIME"
    for each in roles:
        uptime = timedelta(seconds=int(each.uptime_s))
        yield each.role, str(each.pid), str(each.epoch), str(each.num_restarts), str(uptime)
        for rank, pid in enumerate(each.rank_pids[1:], start=1):
            yield f"  rank {rank} of {len(each.rank_pids)}", str(pid), "-", "-", "-"


def _classes(stats: scheduler_pb2.StatsResponse) -> Iterator[Sequence[str]]:
    yield _HEADER
    for each in stats.classes:
        oldest = f"{each.oldest_wait_s:.1f} s" if each.num_queued or each.num_displaced else "-"
        expected = f"{each.expected_wait_s:.1f} s" if each.HasField("expected_wait_s") else "-"
        deadline = f"{each.default_deadline_s:g} s" if each.HasField("default_deadline_s") else "-"
        running = f"{each.num_running} of {each.max_running}" if each.HasField("max_running") else str(each.num_running)
        queued = f"{each.num_queued_requests} of {each.max_queued_requests}"
        shares = (str(each.level), f"{each.weight:g}")
        counts = (running, str(each.num_displaced), queued, str(each.num_queued_tokens))
        yield (each.name, *shares, *counts, oldest, expected, deadline)


def _figures(stats: scheduler_pb2.StatsResponse) -> Iterator[tuple[str, str]]:
    """Labels and what stands beside them; an empty label goes on with the one before."""
    engine = stats.engine
    yield "engine", f"{engine.kind}, blocks of {engine.block_size} tokens and {format_bytes(engine.block_bytes)}"
    yield from _named("progress", _progress(stats))
    yield "slots", f"{stats.num_running} of {stats.max_num_seqs} taken"
    num_displaced = sum(each.num_displaced for each in stats.classes)
    yield "waiting", f"{stats.num_waiting} sequences, {num_displaced} of them displaced"
    yield "device pool", _pool(engine.num_device_blocks, stats.num_free_device_blocks)
    yield "host pool", _pool(engine.num_host_blocks, stats.num_free_host_blocks)
    copied = f"{stats.num_copied_out_blocks} blocks out, {stats.num_copied_in_blocks} in"
    yield "swapped", f"{copied}, {stats.copied_out_s + stats.copied_in_s:.3f} s"
    yield "prompts", f"{stats.num_prompt_tokens} tokens, {stats.num_cached_tokens} of them cached"
    computed = f"{stats.num_computed_tokens} computed, {stats.num_sampled_tokens} sampled"
    yield "tokens", f"{computed}, {stats.num_recomputed_tokens} recomputed, in {stats.num_steps} steps"
    yield from _named("preempted", (f"{each.count} for {each.reason}, by {each.mode}" for each in stats.preemptions))
    yield from _named("refused", (f"{count} for {limit}" for limit, count in sorted(stats.rejections.items())))
    served = sorted(stats.served_tokens.items())
    yield from _named("tenants", (f"{tenant or '(none)'}: {tokens} tokens sampled" for tenant, tokens in served))
    blocked = sorted(stats.blocked.items())
    yield from _named("blocked", (f"{f'level {level}' if level else 'aged lane'}: {why}" for level, why in blocked))


def _progress(stats: scheduler_pb2.StatsResponse) -> Iterator[str]:
    yield f"{stats.steps_per_s:.1f} steps/s, {stats.sampled_tokens_per_s:.1f} tokens/s"
    if stats.HasField("last_step_ago_s"):
        yield f"last step {stats.last_step_ago_s:.1f} s ago, in {stats.last_step_elapsed_s:.3f} s"
    if not stats.executor_attached:
        yield "there is no executor"
    if stats.seconds_since_step >= _WORTH_A_LINE_S:
        yield f"work has waited for a step for {stats.seconds_since_step:.1f} s"


def _pool(num_blocks: int, num_free: int) -> str:
    return f"{num_blocks - num_free} of {num_blocks} blocks held"


def _named(label: str, texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    for number, text in enumerate([*texts] or ["-"]):
        yield "" if number else label, text


def _pairs(figures: Iterable[tuple[str, str]]) -> Iterator[str]:
    return (f"{label:12} {text}" for label, text in figures)


def _table(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The first column to the left, the others to the right."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows)]
    for first, *others in rows:
        cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[1:]))]
        yield "  ".join(cells)
