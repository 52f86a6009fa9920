"""Prompts to token ids."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from jetway.builder import manifest
from jetway.runtime.errors import ConfigError, InvalidArgument
from jetway.runtime.gateway.call import Chat, Message, Prompt
from jetway.runtime.gateway.text.codec import TextCodec
from tests.support.tokenizers import BOS, byte_level, ids_of, metaspace, words, write_engine

TOKENIZER = byte_level()
HELLO = Chat((Message("user", "hello"),))


def load(directory: Path) -> TextCodec:
    return TextCodec.load(directory, manifest.read(directory).tokens)


async def encode(codec: TextCodec, prompt: Prompt) -> list[int]:
    await codec.start()
    try:
        [token_ids] = await codec.encode([prompt], 1 << 20)
        return token_ids
    finally:
        await codec.close()


async def test_plain_text_gets_the_tokenizers_own_special_tokens(engine_dir: Path) -> None:
    tokens = await encode(load(engine_dir), "hi")

    assert tokens == ids_of(TOKENIZER, BOS, "h", "i")


async def test_chat_gets_exactly_the_special_tokens_that_its_template_writes(engine_dir: Path) -> None:
    tokens = await encode(load(engine_dir), HELLO)

    text = "<s><|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    assert tokens == TOKENIZER.encode(text, add_special_tokens=False).ids
    assert [token for token in tokens if token in ids_of(TOKENIZER, BOS)] == tokens[:1]


@pytest.mark.parametrize("make", [byte_level, metaspace], ids=["byte level", "metaspace"])
@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        (HELLO, "<s><|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"),
        ("hello", "hello"),
        ("<s>hello", "hello"),
    ],
    ids=["chat", "text", "text of a client that has rendered its own template"],
)
async def test_prompt_begins_with_exactly_one_bos(
    tmp_path: Path, make: Callable[[], Tokenizer], prompt: Prompt, text: str
) -> None:
    tokenizer = make()
    [bos] = ids_of(tokenizer, BOS)

    tokens = await encode(load(write_engine(tmp_path, tokenizer)), prompt)

    assert (tokens[0], tokens.count(bos)) == (bos, 1)
    assert (
        tokenizer.decode(tokens, skip_special_tokens=False).removeprefix("<s>").strip()
        == text.removeprefix("<s>").strip()
    )


@pytest.mark.parametrize("prompt", ["the", "the ", "<s>the", "the 🙂"], ids=["word", "space", "bos", "emoji"])
async def test_text_of_an_answer_continues_the_text_of_its_prompt(tmp_path: Path, prompt: str) -> None:
    tokenizer = metaspace()
    codec = load(write_engine(tmp_path, tokenizer))
    token_ids = await encode(codec, prompt)
    answer = ids_of(tokenizer, "▁cat", "s")

    detokenizer = codec.detokenizer(prompt, token_ids)
    text = "".join([*detokenizer.push(answer), detokenizer.flush()])

    assert tokenizer.decode(token_ids) + text == tokenizer.decode([*token_ids, *answer])
    assert text == " cats"


async def test_answer_in_a_chat_begins_without_a_space(tmp_path: Path) -> None:
    tokenizer = metaspace()
    codec = load(write_engine(tmp_path, tokenizer))

    detokenizer = codec.detokenizer(HELLO, await encode(codec, HELLO))

    assert detokenizer.push(ids_of(tokenizer, "▁cat", "s")) == ["cat", "s"]


async def test_token_ids_stay_as_they_are(engine_dir: Path) -> None:
    assert await encode(load(engine_dir), (3, 1, 2)) == [3, 1, 2]


@pytest.mark.parametrize("prompt", ["long " * 10_000, Chat((Message("user", "long " * 10_000),))], ids=["text", "chat"])
async def test_long_text_gives_the_same_tokens_as_short_text_would(engine_dir: Path, prompt: str | Chat) -> None:
    tokens = await encode(load(engine_dir), prompt)

    assert TOKENIZER.decode(tokens).count("long ") == 10_000


async def test_model_without_a_template_has_no_chat(tmp_path: Path) -> None:
    codec = load(write_engine(tmp_path, TOKENIZER, chat_template=None))

    with pytest.raises(InvalidArgument, match="no chat template; send a prompt") as caught:
        await encode(codec, HELLO)
    assert caught.value.param == "messages"


async def test_text_that_is_no_unicode_is_an_invalid_argument(engine_dir: Path) -> None:
    with pytest.raises(InvalidArgument, match="cannot encode this text") as caught:
        await encode(load(engine_dir), "half a pair: \ud83d")
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

    tokens = await encode(load(demo_engine), Chat((Message("user", "What is the capital of France? 🙂"),)))

    assert tokens == reference.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
