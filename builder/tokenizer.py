"""A checkpoint's tokenizer in the one form that the gateway reads: tokenizer.json and chat_template.jinja."""

from pathlib import Path

from transformers import PreTrainedTokenizerFast

from .errors import CheckpointError
from .manifest import CHAT_TEMPLATE_FILE, TOKENIZER_FILE, Tokens


def chat_template(tokenizer: PreTrainedTokenizerFast, source: Path) -> str | None:
    """The default chat template. Raises CheckpointError for templates without one; `source` is the file to blame."""
    templates: str | dict[str, str] | None = tokenizer.chat_template
    if not isinstance(templates, dict):
        return templates
    if "default" not in templates:
        problem = f"chat_template has {', '.join(map(repr, templates))}, but no 'default'"
        raise CheckpointError(source, problem, "Name one of them 'default'")
    return templates["default"]


def write(tokenizer: PreTrainedTokenizerFast, template: str | None, directory: Path) -> None:
    """Write the tokenizer, without padding and truncation, and the chat template if there is one."""
    backend = tokenizer.backend_tokenizer
    backend.no_padding()
    backend.no_truncation()
    (directory / TOKENIZER_FILE).write_text(backend.to_str(), encoding="utf-8")
    if template is not None:
        (directory / CHAT_TEMPLATE_FILE).write_text(template, encoding="utf-8")


def check_fits(tokenizer: PreTrainedTokenizerFast, vocab_size: int, source: Path) -> None:
    """Raise CheckpointError for a tokenizer with more tokens than the model; `source` is the file to blame."""
    text, last_id = max(tokenizer.get_vocab().items(), key=lambda item: item[1], default=("", -1))
    if last_id >= vocab_size:
        raise CheckpointError(
            source,
            f"vocab_size is {vocab_size}, but the tokenizer gives {text!r} the id {last_id}",
            "Take that token out of the tokenizer, or enlarge the model's embeddings",
        )


def special_texts(tokenizer: PreTrainedTokenizerFast) -> dict[str, str]:
    """The texts of `bos_token` and the like, for those that the tokenizer has, as a chat template reads them."""
    names = ("bos_token", "eos_token", "unk_token", "pad_token")
    return {name: str(text) for name in names if (text := getattr(tokenizer, name)) is not None}


def special_tokens(tokenizer: PreTrainedTokenizerFast, declared: object, vocab_size: int, source: Path) -> Tokens:
    """The special tokens. A sequence ends at those that are `declared`, an eos_token_id, and at the tokenizer's own.

    Raises CheckpointError for an end token that the model does not have; `source` is the file to blame.
    """
    ids = declared if isinstance(declared, list) else [] if declared is None else [declared]
    eos_ids = [token for token in ids if type(token) is int and 0 <= token < vocab_size]
    if len(eos_ids) < len(ids):
        problem = f"eos_token_id is {declared!r}, not one or more token ids below {vocab_size}"
        raise CheckpointError(source, problem, "Name the tokens that end a text")
    if tokenizer.eos_token_id is not None:
        eos_ids.append(tokenizer.eos_token_id)
    return Tokens(
        eos_ids=tuple(sorted(set(eos_ids))),
        bos=tokenizer.bos_token,
        eos=tokenizer.eos_token,
        unk=tokenizer.unk_token,
        pad=tokenizer.pad_token,
    )
