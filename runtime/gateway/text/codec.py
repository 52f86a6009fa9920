"""The two ways through a model's tokenizer: prompts to token ids, sampled tokens to text."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from jetway.builder.manifest import CHAT_TEMPLATE_FILE, TOKENIZER_FILE, Tokens
from jetway.runtime.errors import ConfigError, InvalidArgument
from jetway.runtime.gateway.call import Chat, Prompt
from jetway.runtime.gateway.words import cut

from .detokenizer import Detokenizer
from .template_process import TemplateProcess
from .vocabulary import Vocabulary

_INLINE_CHARS = 2048  # tokenized in well under a millisecond: not worth a thread
_MOST_ANCHORS = 16  # tokens at the end of a prompt that are tried; more would all be parts of characters


class TextCodec:
    """A tokenizer and, where the model has one, its chat template."""

    def __init__(self, tokenizer: Tokenizer, template: TemplateProcess | None, bos: str | None) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._bos = bos
        self.vocabulary = Vocabulary(tokenizer)

    @classmethod
    def load(cls, directory: Path, tokens: Tokens) -> "TextCodec":
        """From an engine directory. Raises ConfigError for a file that cannot be read."""
        try:
            tokenizer = Tokenizer.from_file(str(directory / TOKENIZER_FILE))
        except Exception as error:  # `tokenizers` raises no class of its own
            raise ConfigError(f"{directory / TOKENIZER_FILE}: {error}; build the engine again") from error
        template_file = directory / CHAT_TEMPLATE_FILE
        if not template_file.exists():
            return cls(tokenizer, None, tokens.bos)
        special = {f"{name}_token": getattr(tokens, name) for name in ("bos", "eos", "unk", "pad")}
        present = {name: text for name, text in special.items() if text is not None}
        return cls(tokenizer, TemplateProcess(template_file.read_text(encoding="utf-8"), present), tokens.bos)

    async def start(self) -> None:
        """Raises ConfigError for a chat template that cannot be used."""
        if self._template is not None:
            await self._template.start()

    async def close(self) -> None:
        if self._template is not None:
            await self._template.close()

    async def encode(self, prompts: Sequence[Prompt], max_chars: int) -> list[list[int]]:
        """Each prompt's token ids; long text is tokenized beside the event loop. Raises InvalidArgument, also for a chat
        of more than `max_chars` once it is rendered.
        """
        texts = [await self._rendered(prompt, max_chars) for prompt in prompts]
        if sum(map(len, texts)) <= _INLINE_CHARS:
            return list(map(self._encode, prompts, texts))
        return await asyncio.to_thread(lambda: list(map(self._encode, prompts, texts)))

    def _encode(self, prompt: Prompt, text: str) -> list[int]:
        """A chat template writes the special tokens itself, and so has a client whose text begins with the BOS; other
        text gets the tokenizer's own. Token ids stay as they are.
        """
        if isinstance(prompt, tuple):
            return list(prompt)
        is_chat = isinstance(prompt, Chat)
        has_special_tokens = is_chat or (self._bos is not None and text.startswith(self._bos))
        try:
            # Of the `encode` family only `encode_batch_fast` lets other threads run for all of its time.
            [encoding] = self._tokenizer.encode_batch_fast([text], add_special_tokens=not has_special_tokens)
        except Exception as error:  # `tokenizers` raises no class of its own
            param = "messages" if is_chat else "prompt"
            raise InvalidArgument(
                f"the model's tokenizer cannot encode this text: {cut(str(error))}", param=param
            ) from error
        return encoding.ids

    async def _rendered(self, prompt: Prompt, max_chars: int) -> str:
        """The text that is to be tokenized."""
        if isinstance(prompt, tuple):
            return ""
        if isinstance(prompt, str):
            return prompt
        if self._template is None:
            raise InvalidArgument("the model has no chat template; send a prompt instead of messages", param="messages")
        return await self._template.render(prompt.messages, max_chars)

    def detokenizer(self, prompt: Prompt, token_ids: Sequence[int]) -> Detokenizer:
        """For one answer to `prompt`, which has `token_ids`: it continues text, but begins a new message in a chat."""
        return Detokenizer(self._tokenizer, None if isinstance(prompt, Chat) else self._anchor(token_ids))

    def _anchor(self, token_ids: Sequence[int]) -> int | None:
        """The last token that has whole characters of its own; None where there is no such token near the end."""
        for token_id in reversed(token_ids[-_MOST_ANCHORS:]):
            text = self._tokenizer.decode([token_id], skip_special_tokens=True)
            if text and "\ufffd" not in text:
                return token_id
        return None
