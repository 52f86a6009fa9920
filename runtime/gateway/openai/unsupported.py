"""Fields that would change the answer and that nothing here honours: refused by name, never ignored.

Other unknown fields (`user`, `metadata`, `store` ...) change no answer and are ignored, as every server does.
"""

import json
from typing import Any

from jetway.runtime.errors import InvalidArgument

from .fields import Fields, shown

# The values, null apart, that ask for nothing.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    # of the OpenAI API
    "audio": (),
    "best_of": (1,),
    "echo": (False,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "logprobs": (False,),
    "modalities": (["text"],),
    "n": (1,),
    "reasoning_effort": (),
    "response_format": ({"type": "text"},),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
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


def refuse_unsupported(body: Fields) -> None:
    """Raises InvalidArgument for the first field of the table that asks for something."""
    for name, neutral in _NEUTRAL.items():
        value = body.raw(name)
        # Types are compared too: to Python, true equals 1.
        if value is not None and not any(type(value) is type(same) and value == same for same in neutral):
            remedy = "leave it out" + "".join(f" or send {json.dumps(same)}" for same in neutral)
            raise InvalidArgument(f"{name} {shown(value)} is not supported here; {remedy}", param=name)
