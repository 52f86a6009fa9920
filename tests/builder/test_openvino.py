"""The exported model continues as Hugging Face does, whatever the checkpoint's form."""

from pathlib import Path
from typing import Any

import openvino as ov
import pytest

from jetway.builder.manifest import OPENVINO_MODEL_FILE
from jetway.builder.progress import Progress
from jetway.builder.spec import BuildSpec
from jetway.builder.stages import build
from tests.builder.references import engine_tokens, huggingface_tokens
from tests.builder.tiny_gguf import write_gguf
from tests.support.checkpoints import make_llama_checkpoint

NUM_TOKENS = 40


def built(checkpoint: Path, engine: Path) -> Path:
    build(BuildSpec(model_dir=checkpoint, output_dir=engine), Progress(lambda text: None), force=False)
    return engine


LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN_ROPE = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="plain"),
        pytest.param({"tie_word_embeddings": True, "dtype": "bfloat16"}, id="tied-bf16"),
        pytest.param({"max_shard_size": "100KB", "dtype": "float16"}, id="sharded-f16"),
        pytest.param({"num_key_value_heads": 1, "head_dim": 32}, id="one-kv-head"),
        pytest.param({"rope_parameters": LLAMA3_ROPE}, id="rope-llama3"),
        pytest.param({"rope_parameters": YARN_ROPE}, id="rope-yarn"),
        pytest.param({"architecture": "MistralForCausalLM", "sliding_window": None}, id="mistral"),
        pytest.param({"architecture": "Qwen2ForCausalLM"}, id="qwen2"),
        pytest.param({"architecture": "Qwen3ForCausalLM"}, id="qwen3"),
    ],
)
def test_tokens_equal_huggingface(tmp_path: Path, options: dict[str, Any]) -> None:
    checkpoint = make_llama_checkpoint(tmp_path / "checkpoint", **options)
    engine = built(checkpoint, tmp_path / "engine")
    assert engine_tokens(engine, NUM_TOKENS) == huggingface_tokens(checkpoint, NUM_TOKENS)


def test_gguf_tokens_equal_huggingface(tmp_path: Path, tiny_checkpoint: Path, tiny_engine: Path) -> None:
    """Against transformers' reading of the GGUF, and against the safetensors that it was made of."""
    gguf = write_gguf(tmp_path / "tiny.gguf", tiny_checkpoint)
    engine = built(gguf, tmp_path / "engine")
    assert engine_tokens(engine, NUM_TOKENS) == huggingface_tokens(gguf, NUM_TOKENS)
    assert (engine / "model.bin").read_bytes() == (tiny_engine / "model.bin").read_bytes()


def test_sharded_checkpoint_has_several_files(tmp_path: Path) -> None:
    """So that `sharded-f16` above means what it says."""
    checkpoint = make_llama_checkpoint(tmp_path, max_shard_size="100KB")
    assert len(list(checkpoint.glob("model-*.safetensors"))) > 1


def test_engine_is_stateful(tiny_engine: Path) -> None:
    """Past keys and values are states, so that the paged-attention transformation can be applied at load."""
    model = ov.Core().read_model(tiny_engine / OPENVINO_MODEL_FILE)
    assert [port.get_any_name() for port in model.inputs] == ["input_ids", "attention_mask", "position_ids", "beam_idx"]
    assert [port.get_any_name() for port in model.outputs] == ["logits"]
    assert len(model.get_sinks()) == 4  # key and value of two layers
    assert {node.get_element_type() for node in model.get_ops() if node.get_type_name() == "Constant"} <= {
        ov.Type.f32,
        ov.Type.i64,
        ov.Type.i32,
        ov.Type.boolean,
    }
