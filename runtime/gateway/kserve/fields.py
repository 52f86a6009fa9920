"""Errors that name a field of a call, in the words of whoever asked with tensors."""

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from jetway.runtime.errors import InvalidArgument

# A call's fields and the tensors that a dialect reads for each: the first of them that is given is what is meant.
Fields = Mapping[str, tuple[str, ...]]
_WORD = re.compile(r"\w+")


@contextmanager
def fields_as_tensors(fields: Fields, given: Collection[str]) -> Iterator[None]:
    """An InvalidArgument about one of the fields names tensors instead, of those that are `given`."""
    try:
        yield
    except InvalidArgument as error:
        if error.param is None or error.param not in fields:
            raise
        names = {field: next((name for name in named if name in given), named[0]) for field, named in fields.items()}
        message = _WORD.sub(lambda word: names.get(word[0], word[0]), error.message)
        raise InvalidArgument(message, param=names[error.param]) from error
