"""What is settled before a build starts."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from jetway.builder.cli import main
from jetway.builder.errors import CheckpointError, OptionError
from tests.builder.damage import with_config
from tests.builder.tensorrt import contract
from tests.builder.tensorrt.conversions import converted, make_plan
from tests.support.checkpoints import make_checkpoint


@pytest.mark.parametrize(
    ("stored", "dtype"),
    [("float32", "float16"), ("float16", "float16"), ("bfloat16", "bfloat16"), ("float64", "float16")],
)
@pytest.mark.parametrize("field", ["dtype", "torch_dtype"])
def test_auto_is_the_checkpoints_dtype(checkpoint: Path, field: str, stored: str, dtype: str) -> None:
    path = checkpoint / "config.json"
    fields = {name: value for name, value in json.loads(path.read_text()).items() if name != "dtype"}
    path.write_text(json.dumps(fields | {field: stored}))
    spec = make_plan(checkpoint).spec
    assert (spec.dtype, spec.kv_cache_dtype) == (dtype, dtype)


@pytest.mark.parametrize(
    ("architecture", "options"),
    [
        ("LlamaForCausalLM", {}),
        ("LlamaForCausalLM", {"tp_size": 4, "pp_size": 2}),
        ("Qwen3ForCausalLM", {"tp_size": 2}),
    ],
)
def test_sizes_are_those_of_the_files(tmp_path: Path, architecture: str, options: dict[str, Any]) -> None:
    tied = {"tie_word_embeddings": True, "num_hidden_layers": 3}
    source = make_checkpoint(tmp_path / "source", architecture, tied, chat_template=None)
    files = converted(source, tmp_path / "ranks", **options).glob("rank*.safetensors")
    written = [sum(tensor.nbytes for tensor in load_file(file).values()) for file in files]
    planned = make_plan(source, **options)
    assert (planned.checkpoint_bytes, planned.rank_bytes) == (sum(written), max(written))


def test_quantized_are_the_matrices_of_layers(tiny_checkpoint: Path) -> None:
    """Attention 4 * 64 * 64 less the shared heads, and 3 * 64 * 128 of MLP: half a byte each. Embedding and head: two."""
    planned = make_plan(tiny_checkpoint, quantization="int4")
    matrices = 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128)
    plain = 2 * 300 * 64 + 5 * 64
    assert planned.checkpoint_bytes == 2 * (matrices + plain)
    assert planned.engine_bytes == planned.rank_bytes == matrices // 2 + 2 * plain


def test_the_budget_of_a_step_is_cut_as_tensorrt_llm_would(tiny_checkpoint: Path) -> None:
    planned = make_plan(tiny_checkpoint, max_batch_size=8, max_num_tokens=4096, max_seq_len=100)
    assert planned.build_config["max_num_tokens"] == 800
    with pytest.raises(OptionError) as refused:
        make_plan(tiny_checkpoint, max_batch_size=1, max_seq_len=32)
    assert str(refused.value) == (
        "--max-batch-size 1: sequences of 32 tokens make steps of no more than 32, and one block of prefill beside the "
        "decodes needs 33. Raise it."
    )


def test_sequences_end_with_the_rope_table(tiny_checkpoint: Path) -> None:
    assert make_plan(tiny_checkpoint).build_config["max_seq_len"] == 256
    with pytest.raises(OptionError) as refused:
        make_plan(tiny_checkpoint, max_seq_len=257)
    assert str(refused.value) == (
        f"--max-seq-len 257: {tiny_checkpoint / 'config.json'} has max_position_embeddings 256. Pass no more than that."
    )


def test_gguf_is_refused_unread(tmp_path: Path) -> None:
    (file := tmp_path / "tiny.gguf").write_bytes(b"GGUF")
    with pytest.raises(OptionError, match=r"GGUF\. Build it from the model's safetensors"):
        make_plan(file)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu', not 'silu'. Build this model with --engine openvino."),
        ({"rms_norm_eps": None}, "rms_norm_eps is None, not a positive finite number. Download the checkpoint again."),
        (
            {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "seq_length": -5},
            "seq_length is -5, not a positive integer. Download the checkpoint again.",
        ),
        (
            {"intermediate_size": 0},
            "intermediate_size is 0, not a positive integer. Download the checkpoint again.",
        ),
        (
            {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 16, "attention_bias": True},
            (
                "attention_bias is true, which TensorRT-LLM's Qwen3 does not have. Build this model with --engine "
                "openvino."
            ),
        ),
    ],
)
def test_models_that_are_not_converted(checkpoint: Path, fields: dict[str, Any], problem: str) -> None:
    with_config(**fields)(checkpoint)
    with pytest.raises(CheckpointError) as refused:
        make_plan(checkpoint)
    assert str(refused.value) == f"{checkpoint / 'config.json'}: {problem}"


def test_another_architecture_is_left_to_tensorrt_llm(checkpoint: Path) -> None:
    with_config(architectures=["OlmoForCausalLM"])(checkpoint)
    planned = make_plan(checkpoint)
    assert planned.decoder is None
    assert planned.checkpoint_config["architecture"] == "OlmoForCausalLM"


# From contracts/tensorrt-llm.md 2.4: what TensorRT-LLM requires, and what it takes other models' defaults for.
NEEDED = {
    "architecture": "Qwen2ForCausalLM",
    "dtype": "float16",
    "vocab_size": 300,
    "max_position_embeddings": 256,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_size": 16,
    "intermediate_size": 128,
    "hidden_act": "silu",
    "position_embedding_type": "rope_gpt_neox",
    "norm_epsilon": 1e-6,
    "rotary_base": 10000.0,
    "rotary_scaling": None,
    "attn_bias": True,
    "mlp_bias": False,
    "mapping": {"world_size": 4, "tp_size": 2, "pp_size": 2},
    "quantization": {"quant_algo": "W8A16", "kv_cache_quant_algo": None},
    "qwen_type": "qwen2",
    "seq_length": 8192,
}


def test_dry_run_is_the_exact_build(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = make_checkpoint(tmp_path / "source", "Qwen2ForCausalLM", {}, chat_template=None)
    capsys.readouterr()  # what writing it has shown
    flags = ["--engine", "tensorrt", "--tp-size", "2", "--pp-size", "2", "--quantization", "int8", "--dry-run"]
    output = tmp_path / "engine"
    assert main(["--model-dir", str(source), "--output-dir", str(output), *flags]) == 0
    document = json.loads(capsys.readouterr().out)
    config, build = document["checkpoint_config"], document["build_config"]
    assert {name: config[name] for name in NEEDED} == NEEDED
    assert contract.violations(build, contract.BUILD_CONFIG) == []
    assert contract.violations(build["plugin_config"], contract.PLUGIN_CONFIG) == []
    assert build["output_timing_cache"] == str(tmp_path / "engine.logs" / "timing.cache")
    assert document["ranks"] == [
        {"rank": 0, "tp_rank": 0, "layers": [0, 1]},
        {"rank": 1, "tp_rank": 1, "layers": [0, 1]},
        {"rank": 2, "tp_rank": 0, "layers": [1, 2]},
        {"rank": 3, "tp_rank": 1, "layers": [1, 2]},
    ]
    assert (document["tensorrt_llm"], document["converted_by"]) == ("1.2.1", "jetway")
    assert list(tmp_path.iterdir()) == [source]


def test_dry_run_says_what_cannot_be_built(tiny_checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--engine", "tensorrt", "--kv-cache-dtype", "fp8", "--dry-run"]
    assert main(["--model-dir", str(tiny_checkpoint), "--output-dir", "none", *flags]) == 2
    assert "--kv-cache-dtype fp8: needs fp8 weights for paged-context FMHA" in capsys.readouterr().err


@pytest.mark.parametrize(("flags", "status"), [([], 2), (["--max-seq-len", "100"], 0), (["--convert-only"], 0)])
def test_dry_run_knows_windows(
    checkpoint: Path, capsys: pytest.CaptureFixture[str], flags: list[str], status: int
) -> None:
    with_config(architectures=["MistralForCausalLM"], model_type="mistral", sliding_window=100)(checkpoint)
    command = ["--model-dir", str(checkpoint), "--output-dir", "none", "--engine", "tensorrt", "--dry-run"]
    assert main([*command, *flags]) == status
    shown = capsys.readouterr()
    assert "has layers that see 100 tokens" in shown.err or json.loads(shown.out)["sliding_window"] == 100


def test_dry_run_of_a_conversion_says_nothing_of_a_build(
    tiny_checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And refuses nothing that only a build cannot have."""
    flags = ["--engine", "tensorrt", "--kv-cache-dtype", "int8", "--calib-dataset", "texts", "--convert-only"]
    assert main(["--model-dir", str(tiny_checkpoint), "--output-dir", "none", *flags, "--dry-run"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["checkpoint_config"]["quantization"] == {"quant_algo": None, "kv_cache_quant_algo": "INT8"}
    conversion = ["tensorrt_llm", "converted_by", "checkpoint_config", "sliding_window", "ranks", "checkpoint_bytes"]
    assert list(document) == conversion


ISOLATED = """
import sys
for name in ("tensorrt", "tensorrt_llm", "openvino", "gguf", "nncf", "accelerate"):
    sys.modules[name] = None  # as if it were not installed
from pathlib import Path
from importlib import import_module
from jetway.builder import tensorrt
from jetway.builder.cli import main

assert main(["--model-dir", sys.argv[1], "--output-dir", "none", "--engine", "tensorrt", "--dry-run"]) == 0
assert not {"torch", "transformers"} & set(sys.modules)
for file in Path(tensorrt.__path__[0]).glob("*.py"):
    import_module(f"jetway.builder.tensorrt.{file.stem}")
flags = ["--engine", "tensorrt", "--convert-only"]
assert main(["--model-dir", sys.argv[1], "--output-dir", sys.argv[2], *flags]) == 0
assert "transformers" not in sys.modules
"""


@pytest.mark.timeout(60)
def test_nothing_of_tensorrt_or_openvino_is_needed(plain_checkpoint: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", ISOLATED, str(plain_checkpoint), str(tmp_path / "ranks")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert {path.name for path in (tmp_path / "ranks").iterdir()} == {"config.json", "rank0.safetensors"}
