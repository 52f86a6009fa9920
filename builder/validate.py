"""What can be known of a checkpoint in seconds, with torch but without its weights. Loads torch and transformers."""

from dataclasses import dataclass

from transformers import PreTrainedTokenizerFast

from . import huggingface, template, tokenizer
from .plan import Plan


@dataclass(frozen=True, slots=True)
class Text:
    """How text becomes tokens, and a conversation text."""

    hf_tokenizer: PreTrainedTokenizerFast
    chat_template: str | None


@dataclass(frozen=True, slots=True)
class Validated:
    """What the checks have found, for the stages that come."""

    text: Text
    sliding_windows: tuple[int | None, ...]  # as in the manifest


def validate(plan: Plan) -> Validated:
    """Check tokenizer, chat template and the tensors' names and shapes. Raises CheckpointError, OptionError."""
    if plan.spec.engine == "openvino" and plan.spec.quantization:
        from . import quantize  # here, since it loads openvino

        quantize.check_available()
    sliding_windows = acting_windows(plan)
    return Validated(read_text(plan), sliding_windows)


def read_text(plan: Plan) -> Text:
    """Tokenizer and chat template, checked. Raises CheckpointError."""
    source = plan.source
    hf_tokenizer = huggingface.load_tokenizer(source)
    tokenizer.check_fits(hf_tokenizer, plan.config.vocab_size, source.metadata_file)
    chat_template = tokenizer.chat_template(hf_tokenizer, source.template_file)
    if chat_template is not None:
        template.check(chat_template, tokenizer.special_texts(hf_tokenizer), source.template_file)
    return Text(hf_tokenizer, chat_template)


def acting_windows(plan: Plan) -> tuple[int | None, ...]:
    """The windows that act within `max_seq_len`. Raises CheckpointError, also for tensors that the model has not."""
    if plan.source.gguf_file:
        return ()  # of what is built from GGUF, nothing has a window
    windows = huggingface.sliding_windows(huggingface.inspect_model(plan.source), plan.source)
    acting = tuple(window if window and window < plan.max_seq_len else None for window in windows)
    return acting if any(acting) else ()
