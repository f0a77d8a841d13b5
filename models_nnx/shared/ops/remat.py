"""Rematerialisation of blocks."""

from collections.abc import Callable

import jax
from jax.ad_checkpoint import checkpoint_name

from models_nnx.shared.config import RematConfig, RematPolicy

__all__ = [
    "checkpointed",
    "remat_policy",
    "tag",
]

tag = checkpoint_name


def checkpointed(function: Callable, remat: RematConfig, *, scanned: bool) -> Callable:
    """Returns the pure ``function`` under a remat policy.

    Args:
        function: a function of arrays.
        remat: the residuals that it keeps; ``none`` leaves ``function`` unchanged.
        scanned: True for the body of a loop, which already separates forward and backward.
    """
    if remat.policy is RematPolicy.NONE:
        return function
    return jax.checkpoint(function, policy=remat_policy(remat), prevent_cse=not scanned)


def remat_policy(remat: RematConfig) -> Callable[..., bool] | None:
    """Returns the ``jax.checkpoint`` policy; None, only with ``full``, keeps nothing."""
    policies = jax.checkpoint_policies
    table: dict[RematPolicy, Callable[..., bool] | None] = {
        RematPolicy.NONE: policies.everything_saveable,
        RematPolicy.FULL: None,
        RematPolicy.MINIMAL: policies.dots_with_no_batch_dims_saveable,
        RematPolicy.SAVE_NAMED: policies.save_only_these_names(*remat.names),
    }
    return table[remat.policy]
