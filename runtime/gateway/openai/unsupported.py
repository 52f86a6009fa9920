"""Fields that are not honoured: those that would change the answer are refused by name, the others are ignored."""

import json
from collections.abc import Mapping
from typing import Any

from jetway.runtime.errors import InvalidArgument

from .read import shown

# Each with the values, null apart, that ask for nothing. `logprobs`, `suffix` and the like: of one endpoint only.
REFUSED: dict[str, tuple[Any, ...]] = {
    # of the OpenAI API
    "audio": (),
    "best_of": (1,),
    "echo": (False,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "modalities": (["text"],),
    "reasoning_effort": (),
    "response_format": ({"type": "text"},),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "verbosity": (),
    "web_search_options": (),
    # of other servers
    "add_generation_prompt": (True,),
    "allowed_token_ids": ([],),
    "bad_words": ([],),
    "chat_template": (),
    "chat_template_kwargs": ({},),
    "continue_final_message": (False,),
    "documents": ([],),
    "guided_choice": (),
    "guided_grammar": (),
    "guided_json": (),
    "guided_regex": (),
    "include_stop_str_in_output": (False,),
    "length_penalty": (1, 1.0),
    "prompt_embeds": (),
    "prompt_logprobs": (),
    "skip_special_tokens": (True,),
    "structured_outputs": (),
    "truncate_prompt_tokens": (),
    "use_beam_search": (False,),
}

# Known fields that change no answer here. So does every field that is named nowhere: clients send such, and no server
# refuses them.
IGNORED: dict[str, str] = {
    "metadata": "nothing is stored",
    "parallel_tool_calls": "there are no tools",
    "prediction": "a hint for speed",
    "prompt_cache_key": "prefixes are found by their tokens",
    "safety_identifier": "nothing is moderated",
    "store": "nothing is stored",
    "user": "nothing is counted by user",
}


def refuse_unsupported(values: Mapping[str, Any]) -> None:
    """Raises InvalidArgument for the first field of the table that asks for something."""
    for name, neutral in REFUSED.items():
        value = values.get(name)
        # Types are compared too: to Python, true equals 1.
        if value is not None and not any(type(value) is type(same) and value == same for same in neutral):
            remedy = "leave it out" + "".join(f" or send {json.dumps(same)}" for same in neutral)
            raise InvalidArgument(f"{name} {shown(value)} is not supported here; {remedy}", param=name)
