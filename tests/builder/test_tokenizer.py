"""tokenizer.json and chat_template.jinja mean what the checkpoint's tokenizer means."""

from pathlib import Path

import jinja2.sandbox
import pytest
from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from jetway.builder import tokenizer
from jetway.builder.errors import CheckpointError
from jetway.builder.manifest import Tokens
from tests.support.checkpoints import CHAT_TEMPLATE

FILE = Path("model/tokenizer_config.json")
MESSAGES = [
    {"role": "system", "content": "Answer in one word."},
    {"role": "user", "content": "Does the ferry run at night? Ünïcode 🚢\n"},
    {"role": "assistant", "content": "No."},
    {"role": "user", "content": "<|im_end|> and on Sundays?"},
]


def load(checkpoint: Path) -> PreTrainedTokenizerFast:
    loaded = AutoTokenizer.from_pretrained(checkpoint)
    assert isinstance(loaded, PreTrainedTokenizerFast)
    return loaded


def render(template: str, **variables: object) -> str:
    """As transformers renders, and as the gateway must."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(template).render(**variables)


@pytest.mark.parametrize("add_generation_prompt", [True, False])
def test_chat_equals_transformers(tiny_checkpoint: Path, tiny_engine: Path, add_generation_prompt: bool) -> None:
    reference = load(tiny_checkpoint)
    text = reference.apply_chat_template(MESSAGES, add_generation_prompt=add_generation_prompt, tokenize=False)
    template = (tiny_engine / "chat_template.jinja").read_text(encoding="utf-8")
    assert render(template, messages=MESSAGES, add_generation_prompt=add_generation_prompt) == text
    written = Tokenizer.from_file(str(tiny_engine / "tokenizer.json"))
    assert written.encode(str(text), add_special_tokens=False).ids == reference.encode(text, add_special_tokens=False)


def test_text_equals_transformers(tiny_checkpoint: Path, tiny_engine: Path) -> None:
    text = "The ferry\tleaves  the harbour.\n\nÜnïcode 🚢"
    written = Tokenizer.from_file(str(tiny_engine / "tokenizer.json"))
    ids = written.encode(text).ids
    assert ids == load(tiny_checkpoint).encode(text)
    assert written.decode(ids) == text


def test_padding_and_truncation_are_taken_off(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """They are settings of the training run, and would cut prompts short."""
    loaded = load(tiny_checkpoint)
    loaded.backend_tokenizer.enable_truncation(4)
    loaded.backend_tokenizer.enable_padding(length=64)
    tokenizer.write(loaded, None, tmp_path)
    written = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert len(written.encode("QWXYZ").ids) == 5


def test_files(tiny_checkpoint: Path, tmp_path: Path) -> None:
    loaded = load(tiny_checkpoint)
    tokenizer.write(loaded, None, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"]
    tokenizer.write(loaded, "{{ messages }}", tmp_path)
    assert (tmp_path / "chat_template.jinja").read_text() == "{{ messages }}"


def test_chat_template(tiny_checkpoint: Path) -> None:
    """The default one, where there are several."""
    loaded = load(tiny_checkpoint)
    assert tokenizer.chat_template(loaded, FILE) == CHAT_TEMPLATE
    loaded.chat_template = None
    assert tokenizer.chat_template(loaded, FILE) is None
    loaded.chat_template = {"default": "{{ messages }}", "tool_use": "{{ tools }}"}
    assert tokenizer.chat_template(loaded, FILE) == "{{ messages }}"
    loaded.chat_template = {"tool_use": "{{ tools }}"}
    with pytest.raises(CheckpointError) as refused:
        tokenizer.chat_template(loaded, FILE)
    expected = f"{FILE}: chat_template has 'tool_use', but no 'default'. Name one of them 'default'."
    assert str(refused.value) == expected


def test_special_texts(tiny_checkpoint: Path) -> None:
    loaded = load(tiny_checkpoint)
    loaded.unk_token = None
    assert tokenizer.special_texts(loaded) == {
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "pad_token": "<|im_end|>",
    }


@pytest.mark.parametrize(("declared", "eos_ids"), [(None, (2,)), (2, (2,)), (7, (2, 7)), ([9, 0], (0, 2, 9))])
def test_end_tokens_of_model_and_tokenizer(
    tiny_checkpoint: Path, declared: int | list[int] | None, eos_ids: tuple[int, ...]
) -> None:
    tokens = tokenizer.special_tokens(load(tiny_checkpoint), declared, 300, FILE)
    assert tokens == Tokens(
        eos_ids=eos_ids, bos="<|im_start|>", eos="<|im_end|>", unk="<|endoftext|>", pad="<|im_end|>"
    )


@pytest.mark.parametrize("declared", ["x", 1.5, -1, True, 300, [2, 300], {"a": 2}])
def test_end_tokens_that_are_none_are_refused(tiny_checkpoint: Path, declared: object) -> None:
    with pytest.raises(CheckpointError) as refused:
        tokenizer.special_tokens(load(tiny_checkpoint), declared, 300, FILE)
    problem = f"eos_token_id is {declared!r}, not one or more token ids below 300"
    assert str(refused.value) == f"{FILE}: {problem}. Name the tokens that end a text."
