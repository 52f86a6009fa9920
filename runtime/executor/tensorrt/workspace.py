"""The memory that the ranks of a stage add their shares in: TensorRT-LLM's own, by way of its package.

contracts/tensorrt-llm.md section 3.1 has its shape and who allocates it; the arguments of that call are inferred.
"""

from jetway.runtime.errors import ConfigError
from jetway.runtime.executor.base import Int64Array
from jetway.runtime.executor.trt_bindings import AllReduceWorkspace
from jetway.runtime.executor.trt_rank import RankPart
from jetway.runtime.executor.trt_tensors import workspace_size


def allocate_workspace(part: RankPart, num_devices: int) -> AllReduceWorkspace:
    """Together with the other ranks of the stage. The package has been imported. Raises ConfigError."""
    from tensorrt_llm import Mapping
    from tensorrt_llm.plugin.plugin import CustomAllReduceHelper

    mapping = Mapping(
        world_size=part.num_ranks,
        rank=part.rank,
        tp_size=part.tp_size,
        pp_size=part.num_stages,
        gpus_per_node=num_devices,
    )
    size = CustomAllReduceHelper.max_workspace_size_auto(part.tp_size)
    buffers, addresses = CustomAllReduceHelper.allocate_workspace(mapping, size)
    array: Int64Array = addresses.numpy()
    if array.shape != (workspace_size(part.tp_size),):
        raise ConfigError(
            f"TensorRT-LLM's all-reduce workspace is {list(array.shape)}, not [{workspace_size(part.tp_size)}]"
        )
    return AllReduceWorkspace(array, buffers)
