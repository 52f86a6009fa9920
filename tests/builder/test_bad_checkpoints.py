"""A bad checkpoint ends a build early, with an error that says where, what and what to do, and leaves nothing."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.builder.damage import Damage, cut, refusal, with_config, with_tokenizer, with_weights
from tests.support.checkpoints import make_llama_checkpoint

FIRST_SHARD = "model-00001-of-00003.safetensors"
SHARD = "model-00002-of-00003.safetensors"
NORM = "model.norm.weight"
AGAIN = "Download the checkpoint again."


@pytest.fixture(scope="session")
def sharded_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_llama_checkpoint(tmp_path_factory.mktemp("sharded") / "checkpoint", max_shard_size="200KB")


@pytest.mark.parametrize(
    ("damage", "stage", "message"),
    [
        pytest.param(
            cut("model.safetensors"), "inspect", "model.safetensors: is not a whole safetensors file (", id="truncated"
        ),
        pytest.param(
            with_weights(lambda weights: weights.pop(NORM)),
            "validate",
            f"model.safetensors: has no tensor {NORM} (of 1 that are missing). {AGAIN}",
            id="missing-tensor",
        ),
        pytest.param(
            with_weights(lambda weights: weights.update({NORM: np.ones(65, np.float32)})),
            "validate",
            f"model.safetensors: tensor {NORM} has the shape [65], but config.json means [64]. {AGAIN}",
            id="wrong-shape",
        ),
        pytest.param(
            with_weights(lambda weights: weights.update({"model.layers.2.mlp.up_proj.weight": weights[NORM]})),
            "validate",
            "model.safetensors: holds tensor model.layers.2.mlp.up_proj.weight, for which the model of config.json has "
            f"no place. {AGAIN}",
            id="surplus-tensor",
        ),
        pytest.param(
            with_weights(lambda weights: weights.update({NORM: np.ones(64, np.int8)})),
            "inspect",
            f"model.safetensors: tensor {NORM} is I8, not one of F64, F32, F16, BF16. Use the unquantized checkpoint",
            id="quantized",
        ),
        pytest.param(
            with_weights(lambda weights: weights[NORM].__setitem__(slice(3), [np.nan, np.inf, -np.inf])),
            "convert",
            f"model.safetensors: tensor {NORM} has 3 elements that are infinite or not a number. {AGAIN}",
            id="not-a-number",
        ),
        pytest.param(
            with_config(num_hidden_layers=10**9),
            "inspect",
            "config.json: num_hidden_layers is 1000000000, but there are 21 tensors",
            id="many-layers",
        ),
        pytest.param(
            with_config(vocab_size=2**31 - 1),
            "inspect",
            "config.json: vocab_size 2147483647 times hidden_size 64 is 137438953408, but all tensors together hold "
            "112448 numbers",
            id="huge-vocabulary",
        ),
        pytest.param(
            with_config(intermediate_size=10**15),
            "validate",
            "model.safetensors: tensor model.layers.0.mlp.down_proj.weight has the shape [64, 128], but config.json "
            "means [64, 1000000000000000].",
            id="huge-mlp",
        ),
        pytest.param(
            with_config(num_hidden_layers=0),
            "inspect",
            "config.json: num_hidden_layers is 0, not a positive integer.",
            id="no-layers",
        ),
        pytest.param(
            with_config(hidden_act="no such thing"),
            "validate",
            "config.json: transformers cannot load the model (",
            id="unknown-activation",
        ),
        pytest.param(
            with_config(architectures=["Gemma2ForCausalLM"], head_dim=16, attn_logit_softcapping=None),
            "validate",
            "config.json: architectures is ['Gemma2ForCausalLM'], but model_type 'llama' is that of LlamaForCausalLM.",
            id="two-architectures",
        ),
        pytest.param(
            with_config(rms_norm_eps="small"),
            "inspect",
            "config.json: rms_norm_eps is 'small', not a positive finite number.",
            id="not-a-number-in-config",
        ),
        pytest.param(
            with_config(architectures=["LlamaForSequenceClassification"]),
            "inspect",
            "config.json: architectures ['LlamaForSequenceClassification'] is not supported. Supported are Llama",
            id="other-architecture",
        ),
    ],
)
def test_damaged(checkpoint: Path, damage: Damage, stage: str, message: str) -> None:
    damage(checkpoint)
    found_stage, found = refusal(checkpoint)
    assert found.startswith(f"{checkpoint}/{message}")
    assert found_stage == stage


def duplicate(checkpoint: Path) -> None:
    """Put the last shard's tensors into the second one, too."""
    weights = load_file(checkpoint / SHARD) | load_file(checkpoint / "model-00003-of-00003.safetensors")
    save_file(weights, checkpoint / SHARD, {"format": "pt"})


def move_tensor(checkpoint: Path) -> None:
    path = checkpoint / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    assert index["weight_map"][NORM] == SHARD
    index["weight_map"][NORM] = FIRST_SHARD
    path.write_text(json.dumps(index))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        pytest.param(
            lambda checkpoint: (checkpoint / SHARD).unlink(),
            f"{SHARD}: does not exist, but model.safetensors.index.json names it. Download this shard.",
            id="missing-shard",
        ),
        pytest.param(cut(SHARD), f"{SHARD}: is not a whole safetensors file (", id="truncated-shard"),
        pytest.param(
            duplicate,
            "model-00003-of-00003.safetensors: holds tensor ",
            id="duplicate-tensor",
        ),
        pytest.param(
            move_tensor,
            f"{FIRST_SHARD}: has no tensor {NORM}, but model.safetensors.index.json says so. Download this file again.",
            id="tensor-elsewhere",
        ),
    ],
)
def test_damaged_shards(sharded_checkpoint: Path, tmp_path: Path, damage: Damage, message: str) -> None:
    checkpoint = shutil.copytree(sharded_checkpoint, tmp_path / "checkpoint")
    damage(checkpoint)
    stage, found = refusal(checkpoint)
    assert found.startswith(f"{checkpoint}/{message}")
    assert stage == "inspect"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        pytest.param(
            with_tokenizer(dict.clear), ": transformers cannot load the tokenizer (", id="tokenizer-without-content"
        ),
        pytest.param(
            with_tokenizer(
                lambda tokenizer: tokenizer["added_tokens"].append(
                    tokenizer["added_tokens"][0] | {"id": 300, "content": "<extra>"}
                )
            ),
            "/config.json: vocab_size is 300, but the tokenizer gives '<extra>' the id 300. Take that token out of the",
            id="tokenizer-too-large",
        ),
        pytest.param(
            lambda checkpoint: (checkpoint / "chat_template.jinja").write_text("{{ [].__class__.__base__ }}"),
            "/chat_template.jinja: the chat template does not render a plain conversation (jinja2.exceptions."
            "SecurityError: access to attribute '__class__' of 'list' object is unsafe.). Mend the template, or take "
            "it out.",
            id="hostile-template",
        ),
    ],
)
def test_damaged_tokenizer(checkpoint: Path, damage: Damage, message: str) -> None:
    damage(checkpoint)
    stage, found = refusal(checkpoint)
    assert found.startswith(f"{checkpoint}{message}")
    assert stage == "validate"
