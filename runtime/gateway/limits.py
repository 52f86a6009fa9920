"""How much one call may ask for, whatever its protocol."""

from collections.abc import Sequence
from dataclasses import dataclass

from jetway.runtime.config import GatewayConfig
from jetway.runtime.errors import InvalidArgument

from .call import Call, Chat

CHARS_PER_TOKEN = 32  # far more than any text has on average: a prompt with more characters than these fits no engine


@dataclass(frozen=True, slots=True)
class CallLimits:
    """As configured. What no configuration allows is refused where a call is parsed."""

    config: GatewayConfig

    def check(self, call: Call, max_seq_len: int) -> None:
        """Raises InvalidArgument. Looks at the prompts' lengths before they are tokenized."""
        config, sampling = self.config, call.sampling
        _check("prompts in a call", len(call.prompts), config.max_prompts, "prompt")
        _check("n", call.n, config.max_n, "n")
        _check("logprobs", sampling.logprobs or 0, config.max_logprobs, "logprobs")
        _check("entries of logit_bias", len(sampling.logit_bias), config.max_logit_bias, "logit_bias")
        _check("stop strings", len(call.stop), config.max_stop_strings, "stop")
        _check("characters of a stop string", max(map(len, call.stop), default=0), config.max_stop_chars, "stop")
        most_chars = self.max_prompt_chars(max_seq_len)
        for prompt in call.prompts:
            match prompt:
                case Chat(messages):
                    _check("messages of a chat", len(messages), max_seq_len, "messages")  # each takes a token, at least
                    num_chars = sum(len(message.content) for message in messages)
                    _check("characters of a prompt", num_chars, most_chars, "messages")
                case str():
                    _check("characters of a prompt", len(prompt), most_chars, "prompt")
                case _:
                    check_tokens(prompt, max_seq_len)

    def max_prompt_chars(self, max_seq_len: int) -> int:
        return self.config.max_prompt_chars or CHARS_PER_TOKEN * max_seq_len


def check_tokens(token_ids: Sequence[int], max_seq_len: int) -> None:
    """Raises InvalidArgument for a prompt that leaves no room: the scheduler, which would say so too, is spared it."""
    if len(token_ids) >= max_seq_len:
        raise InvalidArgument(
            f"the prompt has {len(token_ids)} tokens; the engine's max_seq_len of {max_seq_len} tokens leaves no room to "
            "generate",
            param="prompt",
        )


def _check(what: str, value: int, limit: int, param: str) -> None:
    if value > limit:
        raise InvalidArgument(f"{what} may be at most {limit} here, not {value}", param=param)
