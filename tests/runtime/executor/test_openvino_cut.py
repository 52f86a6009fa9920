"""A model cut into stages computes what the whole one does, whatever its architecture, and each stage holds its own."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops
from safetensors import safe_open

from jetway.builder import manifest
from jetway.builder.manifest import OPENVINO_MODEL_FILE
from jetway.builder.progress import Progress
from jetway.builder.spec import BuildSpec
from jetway.builder.stages import build
from jetway.runtime.errors import ConfigError
from jetway.runtime.executor.base import Int32Array, Sampled, StepBatch, SynchronousEngine
from jetway.runtime.executor.noise import Float32Array
from jetway.runtime.executor.openvino_cut import Stage, stage_model
from jetway.runtime.executor.openvino_graph import paged_model
from jetway.runtime.executor.openvino_model import PagedModel, Resources
from jetway.runtime.executor.sampling import sample
from jetway.scheduler.plan import EngineDescription
from tests.runtime.executor.driving import Job, generate
from tests.support.checkpoints import make_checkpoint

NUM_LAYERS = 3
WINDOW = 20
JOBS = [
    Job([(11 * index + first) % 300 for index in range(length)], 6) for first, length in ((5, 75), (40, 33), (7, 1))
]
GEMMA = {"head_dim": 32, "query_pre_attn_scalar": 24, "sliding_window": WINDOW}
WINDOWS = ["sliding_attention", "full_attention", "sliding_attention"]
LONGROPE = {
    "rope_parameters": {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1.0, 1.1, 1.2, 1.4, 1.7, 2.1, 2.6, 3.2],
        "long_factor": [9.0] * 8,
        "original_max_position_embeddings": 128,
    },
    "original_max_position_embeddings": 128,
}


class Chain(SynchronousEngine):
    """Stages in one process, one after the other, and the logits of each step."""

    def __init__(self, stages: Sequence[PagedModel]) -> None:
        self._stages = stages
        self.eos_token_ids = frozenset[int]()
        self.logits: list[Float32Array] = []

    def describe(self) -> EngineDescription:
        return self._stages[0].describe()

    def copy_out(self, device_blocks: Int32Array, host_blocks: Int32Array) -> None:
        raise NotImplementedError

    def copy_in(self, host_blocks: Int32Array, device_blocks: Int32Array) -> None:
        raise NotImplementedError

    def execute(self, batch: StepBatch) -> Sampled:
        values = None
        for stage in self._stages:
            values = stage.infer(batch, values)
        assert values is not None
        self.logits.append(values.copy())
        return sample(values, batch.sample_states)


def chain(directory: Path, num_stages: int) -> Chain:
    resources = Resources(num_device_blocks=16)
    return Chain([PagedModel.load(directory, resources, Stage(index, num_stages)) for index in range(num_stages)])


def built(tmp_path: Path, architecture: str, fields: dict[str, Any], **options: Any) -> Path:
    fields = {"num_hidden_layers": NUM_LAYERS, **fields}
    # Without a chat template: to try one takes a process, and a second.
    checkpoint = make_checkpoint(tmp_path / "checkpoint", architecture, fields, chat_template=None)
    spec = BuildSpec(model_dir=checkpoint, output_dir=tmp_path / "engine", **options)
    build(spec, Progress(lambda text: None), force=False)
    return tmp_path / "engine"


def paged(directory: Path) -> ov.Model:
    return paged_model(directory / OPENVINO_MODEL_FILE, manifest.read(directory).sliding_windows)


@pytest.mark.timeout(60)  # the first builds, and loads torch
@pytest.mark.parametrize(
    ("architecture", "fields", "options"),
    [
        pytest.param("LlamaForCausalLM", {"attention_bias": True, "mlp_bias": True}, {}, id="llama-bias"),
        pytest.param("LlamaForCausalLM", {"tie_word_embeddings": True}, {"kv_cache_dtype": "u8"}, id="llama-u8"),
        pytest.param("LlamaForCausalLM", {}, {"quantization": "int8"}, id="llama-int8"),
        pytest.param("MistralForCausalLM", {"sliding_window": WINDOW}, {}, id="mistral"),
        pytest.param("Qwen2ForCausalLM", {}, {}, id="qwen2"),
        pytest.param("Qwen3ForCausalLM", {"head_dim": 32}, {}, id="qwen3"),
        pytest.param("GPT2LMHeadModel", {}, {}, id="gpt2"),
        pytest.param("GemmaForCausalLM", {"head_dim": 32}, {}, id="gemma"),
        pytest.param("Gemma2ForCausalLM", GEMMA | {"attn_logit_softcapping": None}, {}, id="gemma2"),
        pytest.param("Gemma3ForCausalLM", GEMMA | {"layer_types": WINDOWS}, {}, id="gemma3"),
        pytest.param("PhiForCausalLM", {"num_key_value_heads": None, "qk_layernorm": True}, {}, id="phi"),
        pytest.param("Phi3ForCausalLM", LONGROPE, {}, id="phi3"),
    ],
)
def test_stages_compute_what_the_model_does(
    tmp_path: Path, architecture: str, fields: dict[str, Any], options: dict[str, str], request: pytest.FixtureRequest
) -> None:
    """Ragged batches of prefill chunks and decodes; f32 may move where a kernel spans what is cut."""
    if "quantization" in options:
        request.getfixturevalue("nncf")
    directory = built(tmp_path, architecture, fields, **options)
    whole = chain(directory, 1)
    expected = generate(whole, JOBS, chunk_tokens=32)
    for num_stages in (2, NUM_LAYERS):
        stages = chain(directory, num_stages)
        assert generate(stages, JOBS, chunk_tokens=32) == expected
        for logits, reference in zip(stages.logits, whole.logits, strict=True):
            np.testing.assert_allclose(logits, reference, rtol=0, atol=1e-5)


def weight_bytes(model: ov.Model) -> int:
    return sum(node.get_byte_size() for node in model.get_ordered_ops() if node.get_type_name() == "Constant")


def test_a_stage_holds_its_weights_only(three_layers_directory: Path) -> None:
    """But for some small constants: its layers, and at the ends the embeddings and the head."""
    with safe_open(three_layers_directory.parent / "checkpoint/model.safetensors", framework="np") as file:
        sizes = {name: file.get_tensor(name).nbytes for name in file.keys()}  # noqa: SIM118  it is no dict
    for index, parts in enumerate([("embed", "layers.0.", "layers.1."), ("layers.2.", "lm_head", "model.norm")]):
        expected = sum(size for name, size in sizes.items() if any(part in name for part in parts))
        held = weight_bytes(stage_model(paged(three_layers_directory), Stage(index, 2)))
        assert expected <= held <= 1.01 * expected


def test_a_stage_holds_its_layers_share_of_each_block(three_layers_directory: Path) -> None:
    resources = Resources(kv_cache_memory=8 * manifest.read(three_layers_directory).block_bytes)
    stages = [PagedModel.load(three_layers_directory, resources, Stage(index, 2)) for index in range(2)]
    whole = PagedModel.load(three_layers_directory, resources)
    assert [stage.describe() for stage in stages] == [replace(whole.describe(), num_stages=2)] * 2
    assert whole.pools.num_device_blocks == 8
    assert [stage.pools.block_bytes for stage in stages] == [
        whole.pools.block_bytes // 3 * 2,
        whole.pools.block_bytes // 3,
    ]


def test_more_stages_than_layers_are_refused(three_layers_directory: Path) -> None:
    with pytest.raises(ConfigError) as error:
        PagedModel.load(three_layers_directory, Resources(num_device_blocks=1), Stage(0, 4))
    reason = "a model of 3 layers does not make 4 pipeline stages"
    assert error.value.message == f"the engine in {three_layers_directory} cannot be loaded: {reason}"


def test_a_model_whose_layers_share_more_than_one_tensor_is_refused(three_layers_directory: Path) -> None:
    """Its embeddings go round the layers to the head."""
    model = paged(three_layers_directory)
    nodes = model.get_ordered_ops()
    embedding = next(node for node in nodes if node.get_type_name() == "Gather")
    head = next(node for node in reversed(nodes) if node.get_type_name() == "MatMul")
    rows = model.input("sample_tokens").get_node()
    skip = ops.add(head.input_value(0), ops.gather(embedding, rows, ops.constant(0, ov.Type.i64)))
    head.input(0).replace_source_output(skip.output(0))
    model.validate_nodes_and_infer_types()
    with pytest.raises(ConfigError, match="more than one tensor goes from layer 1 to 2"):
        stage_model(model, Stage(0, 2))
