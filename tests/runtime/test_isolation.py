"""Tenants through the whole stack: what one has computed helps that one only, so that no timing tells of another's prompts."""

from pathlib import Path

from tests.support.stack import TOKENIZER, stack
from tests.support.tokenizers import write_engine

PROMPT = list(
    range(20)
)  # five whole blocks, of which the last is computed again: something has to give the first token


async def test_a_prompt_is_found_in_the_cache_by_its_own_tenant_only(tmp_path: Path) -> None:
    async with stack(write_engine(tmp_path, TOKENIZER)) as running:

        async def cached_tokens(tenant: str) -> int:
            completion = await running.clients[tenant].generate(token_ids=PROMPT, max_tokens=1)
            return completion.usage.cached_tokens

        first = [await cached_tokens(tenant) for tenant in ("acme", "other", "")]
        again = [await cached_tokens(tenant) for tenant in ("acme", "other", "")]

    assert (first, again) == ([0, 0, 0], [16, 16, 16])
