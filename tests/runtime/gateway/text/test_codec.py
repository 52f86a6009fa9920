"""Prompts to token ids."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from jetway.builder import manifest
from jetway.runtime.errors import ConfigError, InvalidArgument
from jetway.runtime.gateway.call import Chat, Message
from jetway.runtime.gateway.text.codec import TextCodec
from tests.support.tokenizers import BOS, byte_level, ids_of, words, write_engine

TOKENIZER = byte_level()
HELLO = Chat((Message("user", "hello"),))


def load(directory: Path) -> TextCodec:
    return TextCodec.load(directory, manifest.read(directory).tokens)


async def test_plain_text_gets_the_tokenizers_own_special_tokens(engine_dir: Path) -> None:
    tokens = await load(engine_dir).encode("hi")

    assert tokens == ids_of(TOKENIZER, BOS, "h", "i")


async def test_chat_gets_exactly_the_special_tokens_that_its_template_writes(engine_dir: Path) -> None:
    tokens = await load(engine_dir).encode(HELLO)

    text = "<s><|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    assert tokens == TOKENIZER.encode(text, add_special_tokens=False).ids
    assert [token for token in tokens if token in ids_of(TOKENIZER, BOS)] == tokens[:1]


async def test_token_ids_stay_as_they_are(engine_dir: Path) -> None:
    assert await load(engine_dir).encode((3, 1, 2)) == [3, 1, 2]


@pytest.mark.parametrize("prompt", ["long " * 10_000, Chat((Message("user", "long " * 10_000),))], ids=["text", "chat"])
async def test_long_text_gives_the_same_tokens_as_short_text_would(engine_dir: Path, prompt: str | Chat) -> None:
    tokens = await load(engine_dir).encode(prompt)

    assert TOKENIZER.decode(tokens).count("long ") == 10_000


async def test_model_without_a_template_has_no_chat(tmp_path: Path) -> None:
    codec = load(write_engine(tmp_path, TOKENIZER, chat_template=None))

    with pytest.raises(InvalidArgument, match="no chat template; send a prompt") as caught:
        await codec.encode(HELLO)
    assert caught.value.param == "messages"


async def test_text_that_is_no_unicode_is_an_invalid_argument(engine_dir: Path) -> None:
    with pytest.raises(InvalidArgument, match="cannot encode this text") as caught:
        await load(engine_dir).encode("half a pair: \ud83d")
    assert caught.value.param == "prompt"


def test_unreadable_tokenizer_is_a_config_error_that_names_the_file(tmp_path: Path) -> None:
    directory = write_engine(tmp_path, words("a"))
    (directory / manifest.TOKENIZER_FILE).write_text("{}", encoding="utf-8")

    with pytest.raises(ConfigError, match="tokenizer.json: .*; build the engine again"):
        load(directory)


async def test_demo_model_tokenizes_chats_as_transformers_does(demo_engine: Path) -> None:
    template = (demo_engine / manifest.CHAT_TEMPLATE_FILE).read_text(encoding="utf-8")
    tokenizer = Tokenizer.from_file(str(demo_engine / manifest.TOKENIZER_FILE))
    # mypy: transformers leaves this constructor without types
    reference = PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=template)  # type: ignore[no-untyped-call]
    chat = [{"role": "user", "content": "What is the capital of France? 🙂"}]

    tokens = await load(demo_engine).encode(Chat((Message("user", "What is the capital of France? 🙂"),)))

    assert tokens == reference.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
