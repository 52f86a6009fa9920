"""Mistakes that a TensorRT step could hold, at least one for each rule of contracts/tensorrt-llm.md 3.1 to 3.4, by name.

tests/runtime/executor/test_trt_mutations.py shows that the reference interpreter catches every one. A step that has
nothing to get wrong stays as it is.
"""

from tests.mutations import batch, cache, constants, rows
from tests.support.trt_mutation import Mutation

MUTATIONS: dict[str, Mutation] = {**rows.LIST, **constants.LIST, **cache.LIST, **batch.LIST}
