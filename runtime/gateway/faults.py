"""Faults of ours inside a call: logged with its id, and told to its client as Internal."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from jetway.runtime.errors import Internal, JetwayError

log = logging.getLogger(__name__)


@contextmanager
def faults_as_errors(request_id: str) -> Iterator[None]:
    try:
        yield
    except JetwayError:
        raise
    except Exception as error:
        log.exception("%s: a fault of the gateway", request_id, extra={"request_id": request_id})
        raise Internal(f"a fault of the gateway: {type(error).__name__}") from error
