"""Mistakes that a TensorRT step could hold, for each rule of contracts/tensorrt-llm.md 3.1 to 3.4 that tensors can break.

tests/runtime/executor/test_trt_mutations.py shows that the reference interpreter catches every one. A step that has
nothing to get wrong stays as it is. What one rank's interpreter cannot judge:

- all_reduce_workspace, and heads that do not divide among ranks (3.3): it is one rank. See tensorrt/test_many_ranks.
- offsets beyond an int32 (3.2), and the order of a pool's dimensions (3.3), which is its own. See test_trt_kv.
- a cache in INT8, sink tokens, beams and chunks without paged context (3.4): no such engine is loaded. See
  tests/builder/tensorrt/test_engine_config.py.
- memory that the device still reads (3.1): only that a step's tensors stay as they are until the next one is bound.
"""

from tests.mutations import batch, cache, constants, rows
from tests.support.trt_mutation import Mutation

MUTATIONS: dict[str, Mutation] = {**rows.LIST, **constants.LIST, **cache.LIST, **batch.LIST}
