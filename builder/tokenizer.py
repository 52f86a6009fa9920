"""A checkpoint's tokenizer in the one form that the gateway reads: tokenizer.json and chat_template.jinja."""

from pathlib import Path

from transformers import GenerationConfig, PreTrainedTokenizerFast

from .errors import CheckpointError
from .manifest import CHAT_TEMPLATE_FILE, TOKENIZER_FILE, Tokens


def write(tokenizer: PreTrainedTokenizerFast, directory: Path) -> None:
    """Write the tokenizer, without padding and truncation, and its default chat template if it has one."""
    backend = tokenizer.backend_tokenizer
    backend.no_padding()
    backend.no_truncation()
    (directory / TOKENIZER_FILE).write_text(backend.to_str(), encoding="utf-8")
    if tokenizer.chat_template is not None:
        (directory / CHAT_TEMPLATE_FILE).write_text(tokenizer.get_chat_template(), encoding="utf-8")


def check_fits(tokenizer: PreTrainedTokenizerFast, vocab_size: int, source: Path) -> None:
    """Raise CheckpointError for a tokenizer with more tokens than the model; `source` is the file to blame."""
    text, last_id = max(tokenizer.get_vocab().items(), key=lambda item: item[1])
    if last_id >= vocab_size:
        raise CheckpointError(
            source,
            f"vocab_size is {vocab_size}, but the tokenizer gives {text!r} the id {last_id}",
            "Take that token out of the tokenizer, or enlarge the model's embeddings",
        )


def special_tokens(tokenizer: PreTrainedTokenizerFast, generation: GenerationConfig) -> Tokens:
    """The special tokens. A sequence ends at those that `generate` ends at, and at the tokenizer's own."""
    declared = generation.eos_token_id
    eos_ids = {declared} if isinstance(declared, int) else set(declared or ())
    if tokenizer.eos_token_id is not None:
        eos_ids.add(tokenizer.eos_token_id)
    return Tokens(
        eos_ids=tuple(sorted(eos_ids)),
        bos=tokenizer.bos_token,
        eos=tokenizer.eos_token,
        unk=tokenizer.unk_token,
        pad=tokenizer.pad_token,
    )
