"""Writes the demo model as Hugging Face safetensors, which peers read: python -m scripts.benchmarks.peers.checkpoint DIR."""

import sys
from pathlib import Path

from jetway.builder import checkpoint, huggingface
from scripts.setup import MODEL


def save(directory: Path) -> None:
    """The weights as the builder reads them, in float32."""
    huggingface.load_model(checkpoint.find(MODEL)).save_pretrained(directory)


if __name__ == "__main__":
    save(Path(sys.argv[1]))
