"""Framework-free maths shared by both twins, one file per concern."""

from models_nnx.shared.ops.accumulation import accumulate
from models_nnx.shared.ops.attention import SINK_INIT, attention, causal_segment_mask, repeat_heads, soft_cap
from models_nnx.shared.ops.batch_split import HALVES, in_halves, join_halves, require_placed
from models_nnx.shared.ops.cache import (
    DecodeState,
    cache_mask,
    choose_token,
    fill_cache,
    insert_row,
    last_logits,
    prompt_layout,
    write_cache,
)
from models_nnx.shared.ops.conditional import apply_if_finite, choose
from models_nnx.shared.ops.diloco import (
    REPLICA,
    Part,
    copies,
    due,
    fragment_parts,
    outer_dtype,
    replica_axis,
    take_outer,
    update_outer,
)
from models_nnx.shared.ops.dropout import dropout
from models_nnx.shared.ops.dtypes import wide_dtype
from models_nnx.shared.ops.experts import ExpertWeights, expert_parameters, experts
from models_nnx.shared.ops.losses import cross_entropy
from models_nnx.shared.ops.mlp import clamped_swiglu, gated_activation
from models_nnx.shared.ops.mtp import ROLLED, MtpInputs, mtp_rate, roll_batch
from models_nnx.shared.ops.norms import norm_init, rms_norm
from models_nnx.shared.ops.pipeline import Pipe, refuse_caching, stage_key
from models_nnx.shared.ops.projections import (
    EMBEDDING_INIT,
    add_bias,
    bias_axes,
    bias_shape,
    einsum,
    kernel_init,
    lookup,
    scale_embedding,
)
from models_nnx.shared.ops.remat import checkpointed, remat_policy, tag
from models_nnx.shared.ops.rotary import rotary
from models_nnx.shared.ops.routing import (
    Routing,
    balance_bias,
    expert_load,
    load_balance,
    route,
    router_logits,
)
from models_nnx.shared.ops.sown import (
    SownError,
    by_layer,
    flat_sown,
    from_layers,
    load_balance_sum,
    mtp_sum,
    mtp_sums,
    sown_load,
    sown_metrics,
    sown_sums,
)
from models_nnx.shared.ops.spikes import SpikeState, skip_spikes
from models_nnx.shared.ops.stages import STAGE
from models_nnx.shared.ops.tiled_losses import tiled_cross_entropy, tiled_logits_sums

__all__ = [
    "EMBEDDING_INIT",
    "HALVES",
    "REPLICA",
    "ROLLED",
    "SINK_INIT",
    "STAGE",
    "DecodeState",
    "ExpertWeights",
    "MtpInputs",
    "Part",
    "Pipe",
    "Routing",
    "SownError",
    "SpikeState",
    "accumulate",
    "add_bias",
    "apply_if_finite",
    "attention",
    "balance_bias",
    "bias_axes",
    "bias_shape",
    "by_layer",
    "cache_mask",
    "causal_segment_mask",
    "checkpointed",
    "choose",
    "choose_token",
    "clamped_swiglu",
    "copies",
    "cross_entropy",
    "dropout",
    "due",
    "einsum",
    "expert_load",
    "expert_parameters",
    "experts",
    "fill_cache",
    "flat_sown",
    "fragment_parts",
    "from_layers",
    "gated_activation",
    "in_halves",
    "insert_row",
    "join_halves",
    "kernel_init",
    "last_logits",
    "load_balance",
    "load_balance_sum",
    "lookup",
    "mtp_rate",
    "mtp_sum",
    "mtp_sums",
    "norm_init",
    "outer_dtype",
    "prompt_layout",
    "refuse_caching",
    "remat_policy",
    "repeat_heads",
    "replica_axis",
    "require_placed",
    "rms_norm",
    "roll_batch",
    "rotary",
    "route",
    "router_logits",
    "scale_embedding",
    "skip_spikes",
    "soft_cap",
    "sown_load",
    "sown_metrics",
    "sown_sums",
    "stage_key",
    "tag",
    "take_outer",
    "tiled_cross_entropy",
    "tiled_logits_sums",
    "update_outer",
    "wide_dtype",
    "write_cache",
]
