"""One frozen configuration for both twins, composed of small parts and validated on construction."""

from models_nnx.config.attention import (
    AttentionConfig,
    AttentionKernel,
    LatentConfig,
    QueryKeyNorm,
    Sinks,
    Span,
)
from models_nnx.config.batch_split import LayerSchedule
from models_nnx.config.checks import ConfigError
from models_nnx.config.decode import CacheUse, Caching, DecodeConfig
from models_nnx.config.diloco import DilocoConfig
from models_nnx.config.layers import FeedForward, LayerKind, LayerLayout, Stack
from models_nnx.config.mlp import Activation, MlpConfig
from models_nnx.config.model import EmbeddingScale, Head, ModelConfig
from models_nnx.config.moe import Biases, Dispatch, MoeConfig, Scoring, Weighting
from models_nnx.config.mtp import MtpConfig
from models_nnx.config.norms import NormPlacement, NormScale
from models_nnx.config.override import override
from models_nnx.config.pipeline import Gather, Loop, PipelineConfig, PipelinedStack
from models_nnx.config.remat import CHECKPOINT_NAMES, RematConfig, RematPolicy
from models_nnx.config.rotary import Boundaries, LinearScaling, RotaryScaling, YarnScaling
from models_nnx.config.train import MomentSharding, OptimizerConfig, TrainConfig

__all__ = [
    "CHECKPOINT_NAMES",
    "Activation",
    "AttentionConfig",
    "AttentionKernel",
    "Biases",
    "Boundaries",
    "CacheUse",
    "Caching",
    "ConfigError",
    "DecodeConfig",
    "DilocoConfig",
    "Dispatch",
    "EmbeddingScale",
    "FeedForward",
    "Gather",
    "Head",
    "LatentConfig",
    "LayerKind",
    "LayerLayout",
    "LayerSchedule",
    "LinearScaling",
    "Loop",
    "MlpConfig",
    "ModelConfig",
    "MoeConfig",
    "MomentSharding",
    "MtpConfig",
    "NormPlacement",
    "NormScale",
    "OptimizerConfig",
    "PipelineConfig",
    "PipelinedStack",
    "QueryKeyNorm",
    "RematConfig",
    "RematPolicy",
    "RotaryScaling",
    "Scoring",
    "Sinks",
    "Span",
    "Stack",
    "TrainConfig",
    "Weighting",
    "YarnScaling",
    "override",
]
