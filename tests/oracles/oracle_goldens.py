"""Models and batch of the golden files: a tiny model of each family, and its inputs."""

from pathlib import Path

import numpy as np

from models_nnx.shared.data import packed_batch
from models_nnx.shared.presets import preset, tiny

GOLDENS = Path(__file__).parent / "goldens"
PRESET_OF = {
    "llama2": "llama2-70b",
    "gemma2": "gemma2-9b",
    "gemma3": "gemma3-12b",
    "qwen3": "qwen3-8b",
    "mixtral": "mixtral-8x7b",
    "deepseek3": "deepseek3-671b",
    "gpt-oss": "gpt-oss-20b",
}


def config_of(name):
    """Returns the tiny model of a family."""
    return tiny(preset(PRESET_OF[name]))


def batch_of():
    """Returns two rows of at least three documents and padding; documents are longer than the tiny window."""
    return packed_batch(2, 40, 11)


def golden(name):
    """Returns float32 logits ``[B, T, V]`` of the independent implementation."""
    return np.load(GOLDENS / f"{name}.npz")["logits"]
