"""What a checkpointed block keeps."""

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
    """Returns the pure ``function`` behind a remat policy.

    Args:
        function: of arrays.
        remat: what it keeps; ``none`` leaves it as it is.
        scanned: whether it is the body of a loop, which already keeps forward and backward apart.
    """
    if remat.policy is RematPolicy.NONE:
        return function
    return jax.checkpoint(function, policy=remat_policy(remat), prevent_cse=not scanned)


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
