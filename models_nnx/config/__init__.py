"""One frozen configuration for both twins, composed of small parts and validated on construction."""

from models_nnx.config.attention import AttentionConfig, AttentionKernel, Span
from models_nnx.config.checks import ConfigError
from models_nnx.config.layers import FeedForward, LayerKind, LayerLayout, Stack
from models_nnx.config.mlp import Activation, MlpConfig
from models_nnx.config.model import Head, ModelConfig
from models_nnx.config.moe import Biases, Dispatch, MoeConfig, Scoring, Weighting
from models_nnx.config.override import override
from models_nnx.config.remat import CHECKPOINT_NAMES, RematConfig, RematPolicy
from models_nnx.config.train import MomentSharding, OptimizerConfig, TrainConfig

__all__ = [
    "CHECKPOINT_NAMES",
    "Activation",
    "AttentionConfig",
    "AttentionKernel",
    "Biases",
    "ConfigError",
    "Dispatch",
    "FeedForward",
    "Head",
    "LayerKind",
    "LayerLayout",
    "MlpConfig",
    "ModelConfig",
    "MoeConfig",
    "MomentSharding",
    "OptimizerConfig",
    "RematConfig",
    "RematPolicy",
    "Scoring",
    "Span",
    "Stack",
    "TrainConfig",
    "Weighting",
    "override",
]
