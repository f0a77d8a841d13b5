"""Rematerialisation: residuals that a forward pass keeps."""

import dataclasses
import enum

from models_nnx.shared.config.checks import require, require_choice

__all__ = [
    "CHECKPOINT_NAMES",
    "RematConfig",
    "RematPolicy",
]

CHECKPOINT_NAMES = ("query", "key", "value", "attention_out", "mlp_hidden")
"""Names of the residuals that a block tags, in the order of computation; the choices for ``RematConfig.names``."""


class RematPolicy(enum.StrEnum):
    """Residuals that the forward pass of a block keeps for its backward pass."""

    NONE = "none"
    FULL = "full"
    MINIMAL = "minimal"
    SAVE_NAMED = "save_named"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RematConfig:
    """Rematerialisation of each block.

    Args:
        policy: residuals that are kept.
        names: the tagged residuals kept by ``save_named``, of `CHECKPOINT_NAMES`; else empty.
    """

    policy: RematPolicy = RematPolicy.NONE
    names: tuple[str, ...] = ()

    def __post_init__(self):
        require_choice(self, policy=RematPolicy)
        unknown = [name for name in self.names if name not in CHECKPOINT_NAMES]
        require(not unknown, "remat.names", unknown, f"names of {CHECKPOINT_NAMES}")
        named = self.policy is RematPolicy.SAVE_NAMED
        rule = "at least one name with policy save_named" if named else "no names unless policy is save_named"
        require(bool(self.names) == named, "remat.names", self.names, rule)
