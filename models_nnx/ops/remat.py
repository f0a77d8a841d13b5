"""What a checkpointed block keeps."""

from collections.abc import Callable

import jax
from jax.ad_checkpoint import checkpoint_name

from models_nnx.config import RematConfig, RematPolicy

__all__ = [
    "remat_policy",
    "tag",
]

tag = checkpoint_name


def remat_policy(remat: RematConfig) -> Callable[..., bool] | None:
    """Returns the ``jax.checkpoint`` policy; None means keep nothing, which only ``full`` asks for."""
    policies = jax.checkpoint_policies
    table: dict[RematPolicy, Callable[..., bool] | None] = {
        RematPolicy.NONE: policies.everything_saveable,
        RematPolicy.FULL: None,
        RematPolicy.MINIMAL: policies.dots_with_no_batch_dims_saveable,
        RematPolicy.SAVE_NAMED: policies.save_only_these_names(*remat.names),
    }
    return table[remat.policy]
