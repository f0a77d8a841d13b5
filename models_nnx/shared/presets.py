"""Published decoders at real size, and their tiny versions for tests."""

import dataclasses
import math
from typing import Any

from models_nnx.shared.config import (
    Activation,
    AttentionConfig,
    Biases,
    Boundaries,
    ConfigError,
    EmbeddingScale,
    Head,
    LatentConfig,
    LinearScaling,
    MlpConfig,
    ModelConfig,
    MoeConfig,
    MtpConfig,
    NormPlacement,
    NormScale,
    QueryKeyNorm,
    Scoring,
    Sinks,
    Span,
    YarnScaling,
)

__all__ = ["PRESETS", "preset", "tiny"]

GEMMA: dict[str, Any] = {
    "norm_scale": NormScale.OFFSET,
    "norms": NormPlacement.PRE_AND_POST,
    "embedding_scale": EmbeddingScale.ROOT,
    "head": Head.TIED,
}
ALTERNATING = (Span.LOCAL, Span.GLOBAL)

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
    # Gemma Team 2024, "Gemma 2", and google/gemma-2-9b.
    "gemma2-9b": ModelConfig(
        vocab=256_000,
        embed=3_584,
        layers=42,
        attention=AttentionConfig(
            heads=16,
            kv_heads=8,
            head_dim=256,
            cycle=ALTERNATING,
            window=4_096,
            query_scalar=256.0,
            soft_cap=50.0,
        ),
        mlp=MlpConfig(hidden=14_336, activation=Activation.GELU),
        logits_soft_cap=30.0,
        **GEMMA,
    ),
    # Gemma Team 2025, "Gemma 3", and the text part of google/gemma-3-12b-pt.
    "gemma3-12b": ModelConfig(
        vocab=262_208,
        embed=3_840,
        layers=48,
        attention=AttentionConfig(
            heads=16,
            kv_heads=8,
            head_dim=256,
            rope_theta=1_000_000.0,
            rope_scaling=LinearScaling(factor=8.0),
            local_rope_theta=10_000.0,
            cycle=(Span.LOCAL,) * 5 + (Span.GLOBAL,),
            window=1_024,
            query_scalar=256.0,
            query_key_norm=QueryKeyNorm.HEAD,
        ),
        mlp=MlpConfig(hidden=15_360, activation=Activation.GELU),
        **GEMMA,
    ),
    # Yang et al. 2025, "Qwen3", and Qwen/Qwen3-8B.
    "qwen3-8b": ModelConfig(
        vocab=151_936,
        embed=4_096,
        layers=36,
        attention=AttentionConfig(
            heads=32, kv_heads=8, head_dim=128, rope_theta=1_000_000.0, query_key_norm=QueryKeyNorm.HEAD
        ),
        mlp=MlpConfig(hidden=12_288),
    ),
    # Jiang et al. 2024, "Mixtral of Experts", and mistralai/Mixtral-8x7B-v0.1.
    "mixtral-8x7b": ModelConfig(
        vocab=32_000,
        embed=4_096,
        layers=32,
        attention=AttentionConfig(heads=32, kv_heads=8, head_dim=128, rope_theta=1_000_000.0),
        mlp=MlpConfig(hidden=14_336),
        moe=MoeConfig(experts=8, top_k=2, hidden=14_336, load_balance=0.02),
        norm_epsilon=1e-5,
    ),
    # DeepSeek-AI 2024, "DeepSeek-V3", and deepseek-ai/DeepSeek-V3.
    "deepseek3-671b": ModelConfig(
        vocab=129_280,
        embed=7_168,
        layers=61,
        attention=AttentionConfig(
            heads=128,
            kv_heads=128,
            head_dim=192,
            rope_scaling=YarnScaling(
                factor=40.0, original_length=4_096, score_factor=(0.1 * math.log(40) + 1) ** 2
            ),
            latent=LatentConfig(query_rank=1_536, key_value_rank=512, rotary_dim=64, value_dim=128),
        ),
        mlp=MlpConfig(hidden=18_432),
        moe=MoeConfig(
            experts=256,
            top_k=8,
            hidden=2_048,
            scoring=Scoring.SIGMOID,
            groups=8,
            top_groups=4,
            scale=2.5,
            shared_hidden=2_048,
            load_balance=1e-4,
            bias_rate=1e-3,
        ),
        dense_layers=3,
        mtp=MtpConfig(depth=1, loss_scale=0.3),
    ),
    # OpenAI 2025, "gpt-oss", and openai/gpt-oss-20b.
    "gpt-oss-20b": ModelConfig(
        vocab=201_088,
        embed=2_880,
        layers=24,
        attention=AttentionConfig(
            heads=64,
            kv_heads=8,
            head_dim=64,
            rope_theta=150_000.0,
            rope_scaling=YarnScaling(
                factor=32.0,
                original_length=4_096,
                boundaries=Boundaries.EXACT,
                angle_factor=0.1 * math.log(32) + 1,
            ),
            cycle=ALTERNATING,
            window=128,
            sinks=Sinks.LEARNED,
            biases=Biases.TRAINED,
        ),
        mlp=MlpConfig(hidden=2_880),
        moe=MoeConfig(
            experts=32,
            top_k=4,
            hidden=2_880,
            load_balance=0.9,
            biases=Biases.TRAINED,
            activation=Activation.CLAMPED_SWIGLU,
        ),
        norm_epsilon=1e-5,
    ),
}


def preset(name: str) -> ModelConfig:
    """Returns the preset called ``name``.

    Raises:
        ConfigError: there is no such preset.
    """
    if name not in PRESETS:
        raise ConfigError("preset", name, f"one of {', '.join(sorted(PRESETS))}")
    return PRESETS[name]


def tiny(config: ModelConfig) -> ModelConfig:
    """Returns ``config`` shrunk for a laptop, with the same structure.

    Sizes are pairwise distinct (also ``heads * head_dim`` and ``embed``), so that tests detect swapped dimensions.
    They are divisible by 8 along weights and batch (heads and experts by 2). Multi-head stays multi-head,
    grouped-query stays grouped, every stack runs its cycle more than once. Windows, caps and rotary lengths shrink
    with the sizes, so that they take effect.
    """
    period = len(config.attention.cycle)
    dense = min(config.dense_layers, 3)
    return dataclasses.replace(
        config,
        vocab=272,
        embed=48,
        layers=dense + (4 if period <= 2 else 2) * period,
        attention=_tiny_attention(config.attention),
        mlp=dataclasses.replace(config.mlp, hidden=80),
        moe=config.moe and _tiny_moe(config.moe),
        dense_layers=dense,
        logits_soft_cap=config.logits_soft_cap and 1.5,
    )


def _tiny_attention(attention: AttentionConfig) -> AttentionConfig:
    grouped = attention.kv_heads < attention.heads
    scaling = attention.rope_scaling
    if isinstance(scaling, YarnScaling):
        scaling = dataclasses.replace(scaling, original_length=20, beta_fast=2.0, beta_slow=0.25)
    return dataclasses.replace(
        attention,
        heads=6,
        kv_heads=2 if grouped else 6,
        head_dim=24 if attention.latent else 16,
        rope_scaling=scaling,
        window=attention.window and 7,
        query_scalar=attention.query_scalar and 20.0,
        soft_cap=attention.soft_cap and 2.5,
        latent=attention.latent
        and LatentConfig(query_rank=40, key_value_rank=32, rotary_dim=8, value_dim=12),
    )


def _tiny_moe(moe: MoeConfig) -> MoeConfig:
    grouped = moe.groups > 1
    return dataclasses.replace(
        moe,
        experts=10,
        top_k=5,
        hidden=56,
        groups=5 if grouped else 1,
        top_groups=3 if grouped else 1,
        shared_hidden=moe.shared_hidden and 2 * 56,
    )
