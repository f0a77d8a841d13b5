"""One frozen configuration for both twins, composed of small parts and validated on construction."""

from models_nnx.shared.config.attention import (
    AttentionConfig,
    AttentionKernel,
    LatentConfig,
    QueryKeyNorm,
    Sinks,
    Span,
)
from models_nnx.shared.config.batch_split import LayerSchedule
from models_nnx.shared.config.checks import ConfigError
from models_nnx.shared.config.decode import CacheUse, Caching, DecodeConfig
from models_nnx.shared.config.diloco import DilocoConfig
from models_nnx.shared.config.layers import FeedForward, LayerKind, LayerLayout, Stack
from models_nnx.shared.config.mlp import Activation, MlpConfig
from models_nnx.shared.config.model import EmbeddingScale, Head, ModelConfig
from models_nnx.shared.config.moe import Biases, Dispatch, MoeConfig, Scoring, Weighting
from models_nnx.shared.config.mtp import MtpConfig
from models_nnx.shared.config.norms import NormPlacement, NormScale
from models_nnx.shared.config.override import override
from models_nnx.shared.config.pipeline import Gather, Loop, PipelineConfig, PipelinedStack
from models_nnx.shared.config.remat import CHECKPOINT_NAMES, RematConfig, RematPolicy
from models_nnx.shared.config.rotary import Boundaries, LinearScaling, RotaryScaling, YarnScaling
from models_nnx.shared.config.train import MomentSharding, OptimizerConfig, TrainConfig

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
