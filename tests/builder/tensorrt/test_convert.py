"""The converted checkpoint is the model: what is computed from the ranks' files equals Hugging Face."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from jetway.builder.errors import CheckpointError
from tests.builder.tensorrt.conversions import converted
from tests.builder.tensorrt.rank_model import RankModel, num_layers
from tests.support.checkpoints import make_checkpoint

PROMPT = [(11 * index + 5) % 300 for index in range(80)]
TOLERANCE = 1e-4  # of the largest logit; two correct f32 implementations differ by some 1e-5 of it


def rope(rope_type: str, **fields: Any) -> dict[str, Any]:
    """In the words of transformers 4, which 5 reads, too; `test_rotary` has those of 5."""
    return {"rope_theta": 20000.0, "rope_scaling": {"rope_type": rope_type, **fields}}


LLAMA3 = rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)
YARN = rope("yarn", factor=4.0, original_max_position_embeddings=64)
BIASES = {"attention_bias": True, "mlp_bias": True}


@pytest.mark.parametrize(
    ("architecture", "fields", "tp_size", "pp_size"),
    [
        pytest.param("LlamaForCausalLM", {}, 1, 1, id="llama"),
        pytest.param("LlamaForCausalLM", {}, 2, 2, id="llama-tp2-pp2"),
        pytest.param("LlamaForCausalLM", {"num_hidden_layers": 5}, 2, 3, id="llama-uneven-stages"),
        pytest.param("LlamaForCausalLM", {}, 4, 1, id="llama-kv-heads-duplicated"),
        pytest.param("LlamaForCausalLM", {"num_key_value_heads": 1, "head_dim": 24}, 4, 1, id="llama-one-kv-head"),
        pytest.param("LlamaForCausalLM", {"num_key_value_heads": 4}, 2, 1, id="llama-multi-head"),
        pytest.param("LlamaForCausalLM", BIASES, 2, 1, id="llama-biases"),
        pytest.param("LlamaForCausalLM", {"tie_word_embeddings": True}, 2, 2, id="llama-tied"),
        pytest.param("LlamaForCausalLM", {"vocab_size": 303}, 4, 1, id="llama-vocabulary-padded"),
        pytest.param("LlamaForCausalLM", {"rms_norm_eps": 0.5}, 1, 1, id="llama-epsilon"),
        pytest.param("LlamaForCausalLM", rope("linear", factor=4.0), 1, 1, id="llama-rope-linear"),
        pytest.param("LlamaForCausalLM", rope("dynamic", factor=4.0), 1, 1, id="llama-rope-dynamic"),
        pytest.param("LlamaForCausalLM", LLAMA3, 1, 1, id="llama-rope-llama3"),
        pytest.param("LlamaForCausalLM", YARN, 1, 1, id="llama-rope-yarn"),
        pytest.param("MistralForCausalLM", {"head_dim": 32}, 2, 1, id="mistral"),
        pytest.param("Qwen2ForCausalLM", {}, 4, 2, id="qwen2"),
        pytest.param("Qwen2ForCausalLM", {"tie_word_embeddings": True}, 1, 1, id="qwen2-tied"),
        pytest.param("Qwen3ForCausalLM", {"head_dim": 32}, 2, 2, id="qwen3"),
    ],
)
def test_logits_equal_huggingface(
    tmp_path: Path, architecture: str, fields: dict[str, Any], tp_size: int, pp_size: int
) -> None:
    source = make_checkpoint(tmp_path / "source", architecture, fields, chat_template=None)
    ranks = converted(source, tmp_path / "ranks", dtype="float32", tp_size=tp_size, pp_size=pp_size)
    model = RankModel.load(ranks)
    assert len(model.ranks) == tp_size * pp_size
    assert sum(map(num_layers, model.ranks[::tp_size])) == fields.get("num_hidden_layers", 2)
    expected = huggingface_logits(source)
    difference = np.abs(model.logits(PROMPT) - expected).max()
    assert difference <= TOLERANCE * np.abs(expected).max()


def huggingface_logits(checkpoint: Path) -> Any:
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    with torch.inference_mode():
        return model(torch.tensor([PROMPT])).logits[0].numpy()


def test_greedy_tokens_equal_huggingface(tiny_checkpoint: Path, tmp_path: Path) -> None:
    model = RankModel.load(converted(tiny_checkpoint, tmp_path / "ranks", dtype="float32", tp_size=4, pp_size=2))
    reference = AutoModelForCausalLM.from_pretrained(tiny_checkpoint, dtype=torch.float32)
    prompt = PROMPT[:8]
    expected = reference.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
        max_new_tokens=12,
        do_sample=False,
        eos_token_id=None,
    )[0].tolist()
    tokens = list(prompt)
    for _ in range(12):
        tokens.append(int(model.logits(tokens)[-1].argmax()))
    assert tokens == expected


@pytest.mark.parametrize(
    ("stored", "asked", "written"),
    [
        ("float32", "auto", torch.float16),
        ("float16", "auto", torch.float16),
        ("bfloat16", "auto", torch.bfloat16),
        ("float32", "bfloat16", torch.bfloat16),
        ("bfloat16", "float32", torch.float32),
    ],
)
def test_every_weight_is_cast(tmp_path: Path, stored: str, asked: str, written: torch.dtype) -> None:
    source = make_checkpoint(tmp_path / "source", "LlamaForCausalLM", {}, dtype=stored, chat_template=None)
    ranks = converted(source, tmp_path / "ranks", dtype=asked)
    found, expected = load_file(ranks / "rank0.safetensors"), load_file(source / "model.safetensors")
    assert {tensor.dtype for tensor in found.values()} == {written}
    qkv = torch.cat([expected[f"model.layers.1.self_attn.{name}_proj.weight"] for name in "qkv"])
    pairs = {
        "transformer.vocab_embedding.weight": expected["model.embed_tokens.weight"],
        "transformer.layers.1.attention.qkv.weight": qkv,
        "transformer.layers.0.mlp.fc.weight": expected["model.layers.0.mlp.gate_proj.weight"],
        "transformer.ln_f.weight": expected["model.norm.weight"],
        "lm_head.weight": expected["lm_head.weight"],
    }
    for name, tensor in pairs.items():
        assert torch.equal(found[name], tensor.to(written))
    config = json.loads((ranks / "config.json").read_text())
    assert config["dtype"] == str(written).removeprefix("torch.")


def test_padding_rows_are_zero(tmp_path: Path) -> None:
    source = make_checkpoint(tmp_path / "source", "LlamaForCausalLM", {"vocab_size": 301}, chat_template=None)
    ranks = converted(source, tmp_path / "ranks", tp_size=4)
    last = load_file(ranks / "rank3.safetensors")["lm_head.weight"]
    assert last.shape == (76, 64)
    assert last[-3:].abs().max() == 0.0
    assert last[-4].abs().max() > 0.0


@pytest.mark.parametrize(
    ("options", "algorithms"),
    [
        ({}, (None, None)),
        ({"quantization": "int8"}, ("W8A16", None)),
        ({"quantization": "int4", "dtype": "bfloat16"}, ("W4A16", None)),
        ({"kv_cache_dtype": "fp8"}, (None, "FP8")),
    ],
)
def test_quantization_is_named_and_weights_stay_plain(
    tiny_checkpoint: Path, tmp_path: Path, options: dict[str, Any], algorithms: tuple[str | None, str | None]
) -> None:
    ranks = converted(tiny_checkpoint, tmp_path / "ranks", **options)
    quantization = json.loads((ranks / "config.json").read_text())["quantization"]
    assert (quantization["quant_algo"], quantization["kv_cache_quant_algo"]) == algorithms
    found = load_file(ranks / "rank0.safetensors")
    scales = [name for name in found if "scal" in name]
    assert all(tensor.is_floating_point() for tensor in found.values())
    if options.get("kv_cache_dtype") == "fp8":
        assert scales == [f"transformer.layers.{layer}.attention.kv_cache_scaling_factor" for layer in (0, 1)]
        assert all(torch.equal(found[name], torch.ones(1)) for name in scales)
    else:
        assert scales == []


def test_shards_of_the_source_do_not_matter(tmp_path: Path) -> None:
    whole = make_checkpoint(tmp_path / "whole", "Qwen3ForCausalLM", {}, chat_template=None)
    shards = make_checkpoint(tmp_path / "shards", "Qwen3ForCausalLM", {}, max_shard_size="100KB", chat_template=None)
    assert len(list(shards.glob("*.safetensors"))) > 1
    for source in (whole, shards):
        converted(source, tmp_path / f"ranks-of-{source.name}", tp_size=2)
    for rank in (0, 1):
        file = f"rank{rank}.safetensors"
        assert (tmp_path / "ranks-of-whole" / file).read_bytes() == (tmp_path / "ranks-of-shards" / file).read_bytes()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (1e6, "has 1 elements that are infinite or not a number in float16. Pass --dtype bfloat16."),
        (float("nan"), "has 1 elements that are infinite or not a number in float16. Download the checkpoint again."),
    ],
)
def test_numbers_that_the_dtype_does_not_have(checkpoint: Path, tmp_path: Path, value: float, message: str) -> None:
    file = checkpoint / "model.safetensors"
    weights = load_file(file)
    weights["model.layers.0.mlp.up_proj.weight"][3, 5] = value
    save_file(weights, file, {"format": "pt"})
    with pytest.raises(CheckpointError) as refused:
        converted(checkpoint, tmp_path / "ranks")
    assert str(refused.value) == f"{file}: tensor model.layers.0.mlp.up_proj.weight {message}"


BOUNDED = """
import resource, sys
from pathlib import Path
from tests.builder.tensorrt.conversions import converted
import torch

torch.set_num_threads(1)
torch.zeros(8).isfinite().all()
(line,) = (line for line in open("/proc/self/status") if line.startswith("VmData"))
limit = (int(line.split()[1]) << 10) + int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
converted(Path(sys.argv[1]), Path(sys.argv[2]), dtype="float32", tp_size=2)
"""


@pytest.mark.timeout(60)
def test_memory_is_that_of_a_tensor(tmp_path: Path) -> None:
    """Not of a rank, let alone of the model. The source is mapped once, which takes addresses but no memory."""
    fields = {"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 8, "vocab_size": 8000}
    source = make_checkpoint(tmp_path / "source", "LlamaForCausalLM", fields, chat_template=None)
    total = (source / "model.safetensors").stat().st_size
    embedding = 8000 * 512 * 4
    limit = 4 * embedding
    command = [sys.executable, "-c", BOUNDED, str(source), str(tmp_path / "ranks"), str(total + limit)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "ranks" / "rank0.safetensors").stat().st_size > limit
    assert total > 2 * limit
