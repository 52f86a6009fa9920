"""The two ways through a model's tokenizer: prompts to token ids, sampled tokens to text."""

import asyncio
from pathlib import Path

from tokenizers import Tokenizer

from jetway.builder.manifest import CHAT_TEMPLATE_FILE, TOKENIZER_FILE, Tokens
from jetway.runtime.errors import ConfigError, InvalidArgument
from jetway.runtime.gateway.call import Chat, Prompt

from .detokenizer import Detokenizer
from .template import ChatTemplate

_INLINE_CHARS = 2048  # tokenized in well under a millisecond: not worth a thread


class TextCodec:
    """A tokenizer and, where the model has one, its chat template."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate | None) -> None:
        self._tokenizer = tokenizer
        self._template = template

    @classmethod
    def load(cls, directory: Path, tokens: Tokens) -> "TextCodec":
        """From an engine directory. Raises ConfigError for a file that cannot be read."""
        try:
            tokenizer = Tokenizer.from_file(str(directory / TOKENIZER_FILE))
        except Exception as error:  # `tokenizers` raises no class of its own
            raise ConfigError(f"{directory / TOKENIZER_FILE}: {error}; build the engine again") from error
        template_file = directory / CHAT_TEMPLATE_FILE
        if not template_file.exists():
            return cls(tokenizer, None)
        special = {f"{name}_token": getattr(tokens, name) for name in ("bos", "eos", "unk", "pad")}
        present = {name: text for name, text in special.items() if text is not None}
        return cls(tokenizer, ChatTemplate(template_file.read_text(encoding="utf-8"), present))

    async def encode(self, prompt: Prompt) -> list[int]:
        """The prompt's token ids; long text is tokenized beside the event loop. Raises InvalidArgument."""
        if isinstance(prompt, tuple):
            return list(prompt)
        num_chars = len(prompt) if isinstance(prompt, str) else sum(len(message.content) for message in prompt.messages)
        if num_chars <= _INLINE_CHARS:
            return self._encode(prompt)
        return await asyncio.to_thread(self._encode, prompt)

    def _encode(self, prompt: str | Chat) -> list[int]:
        """A chat template writes the special tokens itself; plain text gets the tokenizer's own."""
        text = self._render(prompt) if isinstance(prompt, Chat) else prompt
        is_chat = isinstance(prompt, Chat)
        try:
            # Of the `encode` family only `encode_batch_fast` lets other threads run for all of its time.
            [encoding] = self._tokenizer.encode_batch_fast([text], add_special_tokens=not is_chat)
        except Exception as error:  # `tokenizers` raises no class of its own
            param = "messages" if is_chat else "prompt"
            raise InvalidArgument(f"the model's tokenizer cannot encode this text: {error}", param=param) from error
        return encoding.ids

    def _render(self, chat: Chat) -> str:
        if self._template is None:
            raise InvalidArgument("the model has no chat template; send a prompt instead of messages", param="messages")
        return self._template.render([message._asdict() for message in chat.messages])

    def detokenizer(self) -> Detokenizer:
        """For one sequence, which is decoded by itself: its text does not depend on the prompt."""
        return Detokenizer(self._tokenizer)
