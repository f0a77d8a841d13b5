"""Published decoders at real size, and their tiny versions for tests."""

import dataclasses

from models_nnx.config import AttentionConfig, ConfigError, MlpConfig, ModelConfig

__all__ = ["PRESETS", "preset", "tiny"]

PRESETS: dict[str, ModelConfig] = {
    # Touvron et al. 2023, "Llama 2", and the released checkpoints' configurations.
    "llama2-7b": ModelConfig(
        vocab=32_000,
        embed=4_096,
        layers=32,
        attention=AttentionConfig(heads=32, kv_heads=32, head_dim=128),
        mlp=MlpConfig(hidden=11_008),
        norm_epsilon=1e-5,
    ),
    "llama2-70b": ModelConfig(
        vocab=32_000,
        embed=8_192,
        layers=80,
        attention=AttentionConfig(heads=64, kv_heads=8, head_dim=128),
        mlp=MlpConfig(hidden=28_672),
        norm_epsilon=1e-5,
    ),
}


def preset(name: str) -> ModelConfig:
    """Returns the preset called ``name``.

    Raises:
        ConfigError: there is none of that name.
    """
    if name not in PRESETS:
        raise ConfigError("preset", name, f"one of {', '.join(sorted(PRESETS))}")
    return PRESETS[name]


def tiny(config: ModelConfig) -> ModelConfig:
    """Returns ``config`` shrunk for a laptop, with the same structure.

    Sizes are pairwise distinct (also ``heads * head_dim`` and ``embed``), so that a swapped pair of
    dimensions cannot go unseen, and divisible by 8 along weights and batch (heads by 2). Multi-head stays
    multi-head, grouped-query stays grouped. The norm epsilon is large enough to matter.
    """
    grouped = config.attention.kv_heads < config.attention.heads
    return dataclasses.replace(
        config,
        vocab=272,
        embed=48,
        layers=4,
        attention=dataclasses.replace(config.attention, heads=6, kv_heads=2 if grouped else 6, head_dim=16),
        mlp=dataclasses.replace(config.mlp, hidden=80),
    )
