"""The engine continues as Hugging Face does, whatever the checkpoint's form."""

from pathlib import Path
from typing import Any

import openvino as ov
import pytest

from jetway.builder import manifest
from jetway.builder.manifest import OPENVINO_MODEL_FILE
from jetway.builder.progress import Progress
from jetway.builder.spec import BuildSpec
from jetway.builder.stages import build
from tests.builder.references import assert_continues, huggingface_continuations
from tests.builder.tiny_gguf import write_gguf
from tests.support.checkpoints import make_checkpoint

NUM_TOKENS = 16
WINDOW = 20  # in the middle of a block
SHORT_FACTOR = [1.0, 1.1, 1.2, 1.4, 1.7, 2.1, 2.6, 3.2]


def built(checkpoint: Path, engine: Path, **options: Any) -> Path:
    spec = BuildSpec(model_dir=checkpoint, output_dir=engine, **options)
    build(spec, Progress(lambda text: None), force=False)
    return engine


def rope(rope_type: str, **fields: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": rope_type, "rope_theta": 10000.0, **fields}}


LLAMA3_ROPE = rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)
LONGROPE = rope("longrope", short_factor=SHORT_FACTOR, long_factor=[9.0] * 8, original_max_position_embeddings=128) | {
    "original_max_position_embeddings": 128
}
GEMMA = {"head_dim": 32, "query_pre_attn_scalar": 24}
QWEN_WINDOW = {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1}


@pytest.mark.parametrize(
    ("architecture", "fields"),
    [
        pytest.param("LlamaForCausalLM", {}, id="llama"),
        pytest.param("LlamaForCausalLM", {"attention_bias": True, "mlp_bias": True}, id="llama-bias"),
        pytest.param("LlamaForCausalLM", {"num_key_value_heads": 1, "head_dim": 24}, id="llama-one-kv-head"),
        pytest.param("LlamaForCausalLM", rope("linear", factor=4.0), id="llama-rope-linear"),
        pytest.param("LlamaForCausalLM", rope("dynamic", factor=4.0), id="llama-rope-dynamic"),
        pytest.param("LlamaForCausalLM", LLAMA3_ROPE, id="llama-rope-llama3"),
        pytest.param(
            "LlamaForCausalLM",
            rope("yarn", factor=4.0, original_max_position_embeddings=64),
            id="llama-rope-yarn",
        ),
        pytest.param("LlamaForCausalLM", LONGROPE, id="llama-longrope"),
        pytest.param("MistralForCausalLM", {"sliding_window": None}, id="mistral"),
        pytest.param("MistralForCausalLM", {"sliding_window": WINDOW}, id="mistral-window"),
        pytest.param("Qwen2ForCausalLM", {}, id="qwen2"),
        pytest.param("Qwen2ForCausalLM", QWEN_WINDOW, id="qwen2-window-in-one-layer"),
        pytest.param("Qwen3ForCausalLM", {"head_dim": 32}, id="qwen3"),
        pytest.param("GPT2LMHeadModel", {}, id="gpt2"),
        pytest.param("GPT2LMHeadModel", {"scale_attn_by_inverse_layer_idx": True}, id="gpt2-scaled-by-layer"),
        pytest.param("GemmaForCausalLM", {"head_dim": 32}, id="gemma"),
        pytest.param(
            "Gemma2ForCausalLM", GEMMA | {"attn_logit_softcapping": None, "sliding_window": WINDOW}, id="gemma2"
        ),
        pytest.param(
            "Gemma3ForCausalLM",
            GEMMA | {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": WINDOW},
            id="gemma3",
        ),
        pytest.param("PhiForCausalLM", {"num_key_value_heads": None}, id="phi"),
        pytest.param("PhiForCausalLM", {"qk_layernorm": True}, id="phi-qk-layernorm"),
        pytest.param("Phi3ForCausalLM", {"sliding_window": WINDOW}, id="phi3-window"),
        pytest.param("Phi3ForCausalLM", LONGROPE, id="phi3-longrope"),
    ],
)
def test_tokens_equal_huggingface(tmp_path: Path, architecture: str, fields: dict[str, Any]) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint", architecture, fields, chat_template=None)
    expected = huggingface_continuations(checkpoint, NUM_TOKENS)
    assert_continues(built(checkpoint, tmp_path / "engine"), expected, NUM_TOKENS)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"dtype": "bfloat16"}, id="bf16"),
        pytest.param({"dtype": "float16", "max_shard_size": "100KB"}, id="sharded-f16"),
    ],
)
def test_stored_as(tmp_path: Path, options: dict[str, str]) -> None:
    """Tied embeddings, too."""
    checkpoint = make_checkpoint(tmp_path / "checkpoint", "LlamaForCausalLM", {"tie_word_embeddings": True}, **options)
    assert len(list(checkpoint.glob("*.safetensors"))) > (1 if "max_shard_size" in options else 0)
    expected = huggingface_continuations(checkpoint, NUM_TOKENS)
    assert_continues(built(checkpoint, tmp_path / "engine"), expected, NUM_TOKENS)


def test_gguf_tokens_equal_huggingface(tmp_path: Path, tiny_checkpoint: Path, tiny_engine: Path) -> None:
    """Against transformers' reading of the GGUF, and against the safetensors that it was made of."""
    gguf = write_gguf(tmp_path / "tiny.gguf", tiny_checkpoint)
    engine = built(gguf, tmp_path / "engine")
    assert_continues(engine, huggingface_continuations(gguf, NUM_TOKENS), NUM_TOKENS)
    assert (engine / "model.bin").read_bytes() == (tiny_engine / "model.bin").read_bytes()


def test_windows_that_never_act_are_left_out(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint", "MistralForCausalLM", {"sliding_window": 100})
    short = manifest.read(built(checkpoint, tmp_path / "short", max_seq_len=100))
    long = manifest.read(built(checkpoint, tmp_path / "long"))
    assert (short.max_seq_len, short.sliding_windows) == (100, ())
    assert (long.max_seq_len, long.sliding_windows) == (256, (100, 100))
    assert short.engine_id == long.engine_id


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
