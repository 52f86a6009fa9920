"""Hostile templates and hostile words: whatever happens to the process that renders, the gateway says so and goes on."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import psutil
import pytest
import uvloop

from jetway.runtime.errors import ConfigError, InvalidArgument
from jetway.runtime.gateway.call import Message
from jetway.runtime.gateway.text.template_process import TemplateProcess
from tests.support.processes import is_alive
from tests.support.tokenizers import CHAT_TEMPLATE

CPU_S = 0.2
HELLO = (Message("user", "hello"),)
TEXT = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
# Each does harm where the first message says so, and else renders it.
WHEN_ASKED = "{%% if messages[0].content == 'now' %%}%s{%% endif %%}{{ messages[0].content }}"
ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
NOW = (Message("user", "now"),)


@asynccontextmanager
async def started(source: str) -> AsyncIterator[TemplateProcess]:
    template = TemplateProcess(source, {}, CPU_S)
    await template.start()
    try:
        yield template
    finally:
        await template.close()


def workers() -> list[psutil.Process]:
    return [each for each in psutil.Process().children() if "template_worker" in " ".join(each.cmdline())]


async def test_chats_are_rendered_in_turn_by_one_process() -> None:
    async with started(CHAT_TEMPLATE) as template:
        assert await asyncio.gather(*(template.render(HELLO, 1000) for _ in range(20))) == [TEXT] * 20
        assert len(workers()) == 1
        assert await template.render((Message("user", "삼 🙂 \u2028"),), 1000) == TEXT.replace("hello", "삼 🙂 \u2028")
    assert workers() == []


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (ENDLESS, "takes more than 0.2 s of CPU time"),
        ("{{ 'x' * 9999999999 }}", "chat template refuses these messages: MemoryError"),
        ("{% for a in range(99999) %}xxxxxxxxxx{% endfor %}", "characters of a prompt may be at most 1000 here, not 999993"),
        ("{{ raise_exception('roles must alternate') }}", "chat template refuses these messages: roles must alternate"),
        ("{{ range(10**9) | list }}", "Range too big"),
    ],
    ids=["time", "memory", "output", "refusal", "range"],
)  # fmt: skip
async def test_harm_is_a_refusal_of_its_own_chat_only(harm: str, message: str) -> None:
    async with started(WHEN_ASKED % harm) as template:
        outcomes = await asyncio.gather(
            template.render(NOW, 1000), template.render(HELLO, 1000), return_exceptions=True
        )
        assert isinstance(outcomes[0], InvalidArgument)
        assert message in outcomes[0].message
        assert outcomes[0].param == "messages"
        assert outcomes[1] == "hello"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("\n{% for %}", "the chat template does not parse: line 2: "),
        ("{{ ('x ' * 9999999) | wordwrap(1) }}", "the chat template does not parse within 0.2 s of CPU time"),
    ],
    ids=["syntax", "constant that is never computed"],
)
async def test_a_template_that_does_not_parse_is_a_config_error(source: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        await TemplateProcess(source, {}, CPU_S).start()
    assert workers() == []


@pytest.mark.parametrize("attack", [psutil.Process.kill, psutil.Process.terminate], ids=["kill", "terminate"])
async def test_a_process_that_is_killed_is_replaced_and_no_chat_is_lost(
    attack: Callable[[psutil.Process], None],
) -> None:
    async with started(CHAT_TEMPLATE) as template:
        [worker] = workers()
        attack(worker)
        assert await template.render(HELLO, 1000) == TEXT
        assert [each.pid for each in workers()] != [worker.pid]


async def test_a_process_that_is_killed_while_it_starts_is_replaced() -> None:
    template = TemplateProcess(CHAT_TEMPLATE, {}, CPU_S)
    starting = asyncio.create_task(template.start())
    while not (found := workers()):
        await asyncio.sleep(0.001)
    found[0].kill()
    await starting
    assert await template.render(HELLO, 1000) == TEXT
    await template.close()


def test_a_process_whose_end_was_seen_before_the_next_chat_is_replaced() -> None:
    """On the gateway's event loop, whose transports raise where asyncio's own say nothing."""

    async def kill_and_render() -> None:
        async with started(CHAT_TEMPLATE) as template:
            for _ in range(2):
                [worker] = workers()
                worker.kill()
                while is_alive(worker.pid):
                    await asyncio.sleep(0.001)
                await asyncio.sleep(0.01)  # the event loop hears of it
                assert await template.render(HELLO, 1000) == TEXT

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(kill_and_render(), 10.0))


async def test_whoever_goes_away_costs_the_others_nothing() -> None:
    async with started(CHAT_TEMPLATE) as template:
        [worker] = workers()
        calls = [asyncio.create_task(template.render(HELLO, 1000)) for _ in range(20)]
        await asyncio.sleep(0)
        for call in calls[::2]:
            call.cancel()
        assert await asyncio.gather(*calls[1::2]) == [TEXT] * 10
        assert workers() == [worker]


async def test_the_event_loop_runs_on_while_a_chat_renders() -> None:
    async with started(WHEN_ASKED % ENDLESS) as template:
        rendering = asyncio.create_task(template.render(NOW, 1000))
        num_turns = 0
        while not rendering.done():
            await asyncio.sleep(0.001)
            num_turns += 1
    assert num_turns > 10
    assert isinstance(rendering.exception(), InvalidArgument)


PARENT = """if True:
    import asyncio
    from jetway.runtime.gateway.call import Message
    from jetway.runtime.gateway.text.template_process import TemplateProcess

    async def main():
        template = TemplateProcess("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", {}, 1.0)
        await template.start()
        rendering = asyncio.create_task(template.render((Message("user", "x"),), 1000))
        await asyncio.sleep(0.01)
        print("rendering", flush=True)
        await rendering

    asyncio.run(main())
"""


@pytest.mark.parametrize("stopped", [False, True], ids=["runs", "is stopped"])
def test_a_process_whose_gateway_is_killed_ends_too(stopped: bool) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None and parent.stdout.readline() == b"rendering\n"
        [worker] = psutil.Process(parent.pid).children()
        if stopped:
            worker.suspend()
        parent.kill()
    worker.wait(10.0)
