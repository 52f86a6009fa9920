"""A gateway in front of a fake scheduler."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from tests.support.fake_scheduler import FakeScheduler
from tests.support.tokenizers import byte_level, write_engine


@pytest.fixture
def tokenizer() -> Tokenizer:
    return byte_level()


@pytest.fixture
def engine_dir(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    return write_engine(tmp_path, tokenizer)


@pytest.fixture
async def scheduler() -> AsyncIterator[FakeScheduler]:
    async with FakeScheduler() as scheduler:
        yield scheduler
