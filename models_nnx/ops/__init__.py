"""Framework-free maths shared by both twins, one file per concern."""

from models_nnx.ops.accumulation import accumulate
from models_nnx.ops.attention import attention, causal_segment_mask, rotary
from models_nnx.ops.dropout import dropout
from models_nnx.ops.losses import cross_entropy
from models_nnx.ops.mlp import clamped_swiglu, gated_activation
from models_nnx.ops.norms import rms_norm
from models_nnx.ops.pipeline import Pipe, stage_key
from models_nnx.ops.projections import EMBEDDING_INIT, einsum, kernel_init, lookup
from models_nnx.ops.remat import remat_policy, tag
from models_nnx.ops.stages import STAGE

__all__ = [
    "EMBEDDING_INIT",
    "STAGE",
    "Pipe",
    "accumulate",
    "attention",
    "causal_segment_mask",
    "clamped_swiglu",
    "cross_entropy",
    "dropout",
    "einsum",
    "gated_activation",
    "kernel_init",
    "lookup",
    "remat_policy",
    "rms_norm",
    "rotary",
    "stage_key",
    "tag",
]
