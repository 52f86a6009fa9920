"""Chat templates render as transformers renders them."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from jetway.builder import manifest
from jetway.runtime.errors import ConfigError, InvalidArgument
from jetway.runtime.gateway.text.template import ChatTemplate
from tests.support.tokenizers import BOS, CHAT_TEMPLATE, EOS, byte_level

CHATS = [
    [{"role": "user", "content": "Hello"}],
    [{"role": "system", "content": "Be brief. <b>"}, {"role": "user", "content": "  Two\nlines  "}],
    [
        {"role": "user", "content": "삼겹살?"},
        {"role": "assistant", "content": 'He said "yes" & left'},
        {"role": "user", "content": ""},
    ],
]
TEMPLATES = {
    "chatml": CHAT_TEMPLATE,
    "whitespace": """
        {%- for message in messages %}
            {% if message.role == 'system' %}
    <<SYS>>{{ message.content | trim }}<</SYS>>
            {% else %}
    [{{ message.role }}] {{ message.content }}{{ eos_token }}
            {% endif %}
        {% endfor %}
        {% if add_generation_prompt %}[assistant]{% endif %}
""",
    "loop controls": (
        "{% for message in messages %}{% if loop.index0 == 2 %}{% break %}{% endif %}{{ message.content }}|{% endfor %}"
    ),
    "json": "{{ messages | tojson }}{{ messages | tojson(indent=2) }}",
    "generation": (
        "{% for message in messages %}{% generation %}{{ message.content }}{% endgeneration %}\n{% endfor %}"
    ),
    "absent": "{{ pad_token }}{% if tools %}tools{% endif %}{% if not documents is defined %}undefined{% endif %}.",
    "namespace": (
        "{% set ns = namespace(seen=0) %}{% for message in messages %}{% set ns.seen = ns.seen + 1 %}{% endfor %}"
        "{{ ns.seen }}{{ messages[-1]['content'].strip() }}"
    ),
}


def by_transformers(tokenizer: Tokenizer, template: str, chat: list[dict[str, str]], **special: str) -> str:
    # mypy: transformers leaves this constructor without types
    reference = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, chat_template=template, **special
    )
    text = reference.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert isinstance(text, str)
    return text


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("chat", CHATS, ids=["one", "system", "turns"])
def test_renders_as_transformers_does(name: str, chat: list[dict[str, str]]) -> None:
    special = {"bos_token": BOS, "eos_token": EOS}

    rendered = ChatTemplate(TEMPLATES[name], special).render(chat)

    assert rendered == by_transformers(byte_level(), TEMPLATES[name], chat, **special)


@pytest.mark.parametrize("chat", CHATS, ids=["one", "system", "turns"])
def test_template_of_the_demo_model_renders_as_transformers_does(demo_engine: Path, chat: list[dict[str, str]]) -> None:
    source = (demo_engine / manifest.CHAT_TEMPLATE_FILE).read_text(encoding="utf-8")
    tokenizer = Tokenizer.from_file(str(demo_engine / manifest.TOKENIZER_FILE))
    tokens = manifest.read(demo_engine).tokens
    special = {f"{name}_token": text for name in ("bos", "eos") if (text := getattr(tokens, name)) is not None}

    rendered = ChatTemplate(source, special).render(chat)

    assert rendered == by_transformers(tokenizer, source, chat, **special)


def test_date_is_todays() -> None:
    year = ChatTemplate("{{ strftime_now('%Y') }}", {}).render([])

    assert year == by_transformers(byte_level(), "{{ strftime_now('%Y') }}", [{"role": "user", "content": ""}])


def test_refusal_of_the_template_is_an_invalid_argument() -> None:
    template = ChatTemplate("{{ raise_exception('roles must alternate') }}", {})

    with pytest.raises(InvalidArgument, match="chat template refuses these messages: roles must alternate") as caught:
        template.render(CHATS[0])
    assert caught.value.param == "messages"


@pytest.mark.parametrize(
    "attack",
    [
        "{{ messages.__class__.__mro__ }}",
        "{{ messages.append({'role': 'user', 'content': ''}) }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ messages[0].content + 1 }}",
    ],
)
def test_template_cannot_leave_its_sandbox_or_fail_in_a_way_of_its_own(attack: str) -> None:
    with pytest.raises(InvalidArgument):
        ChatTemplate(attack + "{{ raise_exception('nothing was stopped') }}", {}).render(CHATS[0])


def test_template_that_does_not_parse_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="does not parse: line 2: "):
        ChatTemplate("\n{% for %}", {})
