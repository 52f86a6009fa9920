"""Log-probabilities of tokens as the two kinds of completion write them: as JSON text."""

import json
from collections.abc import Callable, Sequence

from jetway.runtime.gateway.text.vocabulary import Vocabulary
from jetway.runtime.gateway.transcript import ScoredToken

LogprobsWriter = Callable[[Sequence[ScoredToken]], str]

_LEAST = -9999.0  # what the OpenAI API writes for less; JSON has no infinity
_encode = json.JSONEncoder().encode


class LogprobsFormat:
    """Spells tokens once; a token that is only part of a character is written as OpenAI's `bytes:\\\\xf0\\\\x9f`."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._texts: dict[int, str] = {}
        self._entries: dict[int, str] = {}

    def chat(self, scored: Sequence[ScoredToken]) -> str:
        """The `logprobs` of a chat's choice."""
        content = ",".join(self._chat_token(each) for each in scored)
        return f'{{"content":[{content}],"refusal":null}}'

    def completion(self, scored: Sequence[ScoredToken]) -> str:
        """The `logprobs` of a text completion's choice. Tokens of equal text share a key: the more probable one's."""
        tokens = ",".join(_encode(self._text(each.token_id)) for each in scored)
        logprobs = ",".join(_number(each.scores.logprob) for each in scored)
        tops = ",".join(self._top(each) for each in scored)
        offsets = ",".join(str(each.text_offset) for each in scored)
        return (
            f'{{"tokens":[{tokens}],"token_logprobs":[{logprobs}],"top_logprobs":[{tops}],"text_offset":[{offsets}]}}'
        )

    def _chat_token(self, scored: ScoredToken) -> str:
        scores = scored.scores
        top = ",".join(
            f'{{{self._entry(token)},"logprob":{_number(logprob)}}}'
            for token, logprob in zip(scores.top_tokens, scores.top_logprobs)
        )
        return f'{{{self._entry(scored.token_id)},"logprob":{_number(scores.logprob)},"top_logprobs":[{top}]}}'

    def _top(self, scored: ScoredToken) -> str:
        """The alternatives and the token itself, where it is none of them."""
        scores = scored.scores
        top: dict[str, float] = {}
        for token, logprob in zip(scores.top_tokens, scores.top_logprobs):
            top.setdefault(self._text(token), logprob)
        top.setdefault(self._text(scored.token_id), scores.logprob)
        return "{" + ",".join(f"{_encode(text)}:{_number(logprob)}" for text, logprob in top.items()) + "}"

    def _entry(self, token_id: int) -> str:
        entry = self._entries.get(token_id)
        if entry is None:
            spelled = list(self._vocabulary.bytes_of(token_id))
            entry = self._entries[token_id] = f'"token":{_encode(self._text(token_id))},"bytes":{spelled}'
        return entry

    def _text(self, token_id: int) -> str:
        text = self._texts.get(token_id)
        if text is None:
            spelled = self._vocabulary.bytes_of(token_id)
            try:
                text = spelled.decode()
            except UnicodeDecodeError:
                text = "bytes:" + "".join(f"\\x{byte:02x}" for byte in spelled)
            self._texts[token_id] = text
        return text


def _number(logprob: float) -> str:
    return f"{max(logprob, _LEAST):.7g}"
