"""Greedy continuations: what Hugging Face computes from a checkpoint, and what OpenVINO computes from an engine."""

from pathlib import Path

import numpy as np
import openvino as ov
import torch
from transformers import AutoModelForCausalLM

from jetway.builder.manifest import OPENVINO_MODEL_FILE

PROMPT = [7, 201, 33, 150, 90, 12, 255, 64]


def huggingface_tokens(checkpoint: Path, num_tokens: int) -> list[int]:
    """PROMPT's continuation by `generate`. `checkpoint` is a directory or a GGUF file."""
    source = {"gguf_file": checkpoint.name} if checkpoint.is_file() else {}
    directory = checkpoint.parent if checkpoint.is_file() else checkpoint
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, **source)
    prompt = torch.tensor([PROMPT])
    output = model.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=num_tokens, do_sample=False, eos_token_id=None
    )
    tokens: list[int] = output[0, len(PROMPT) :].tolist()
    return tokens


def engine_tokens(engine: Path, num_tokens: int) -> list[int]:
    """PROMPT's continuation by the engine's model as it is on disk, stateful and not paged."""
    options = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}  # newer CPUs take bf16 unless told
    request = ov.Core().compile_model(engine / OPENVINO_MODEL_FILE, "CPU", options).create_infer_request()
    tokens, pending = list(PROMPT), PROMPT
    while len(tokens) < len(PROMPT) + num_tokens:
        past = len(tokens) - len(pending)
        results = request.infer(
            {
                "input_ids": np.array([pending], np.int64),
                "attention_mask": np.ones((1, len(tokens)), np.int64),
                "position_ids": np.arange(past, len(tokens), dtype=np.int64)[None],
                "beam_idx": np.zeros(1, np.int32),
            }
        )
        pending = [int(results["logits"][0, -1].argmax())]
        tokens += pending
    return tokens[len(PROMPT) :]
