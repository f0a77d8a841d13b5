"""A layer of experts: router, dispatch, load balance."""

import dataclasses
import enum
import math

from models_nnx.shared.config.checks import require, require_choice, require_number, require_positive
from models_nnx.shared.config.mlp import Activation

__all__ = [
    "Biases",
    "Dispatch",
    "MoeConfig",
    "Scoring",
    "Weighting",
]


class Scoring(enum.StrEnum):
    """Function from the router's logits to scores in (0, 1)."""

    SOFTMAX = "softmax"
    SIGMOID = "sigmoid"


class Weighting(enum.StrEnum):
    """Factor of a chosen expert's output.

    ``normalised`` divides the chosen scores by their sum. With softmax, that is the softmax over the chosen logits
    (Mixtral, gpt-oss), while ``scores`` is the softmax over all logits.
    """

    SCORES = "scores"
    NORMALISED = "normalised"


class Dispatch(enum.StrEnum):
    """Dispatch of tokens: every choice is computed, or each expert takes up to a fixed number of tokens of each row."""

    DROPLESS = "dropless"
    DROPPING = "dropping"


class Biases(enum.StrEnum):
    """Trained biases of projections (and of the router, in a layer of experts), or none."""

    NONE = "none"
    TRAINED = "trained"


@dataclasses.dataclass(frozen=True, kw_only=True)
class MoeConfig:
    """Mixture of experts, each a gated MLP.

    Args:
        experts: number of experts.
        top_k: experts of each token.
        hidden: width of one expert.
        scoring, weighting: from logits to the weights of the chosen experts.
        groups, top_groups: the experts form groups of equal size; a token chooses within its best
            ``top_groups``, where a group's score is the sum of its two highest (DeepSeek-V3). 1 and 1: no groups.
        scale: the weights' common factor.
        shared_hidden: width of the expert that every token takes; 0 for none.
        dispatch: dropless or dropping.
        capacity_factor: with dropping, capacity of an expert as a multiple of its even share of a row.
        load_balance: coefficient of the load-balance loss.
        bias_rate: step of the routing bias, which affects only the choice and follows the load; None for no bias.
        biases: biases of router and experts.
        activation: activation of every expert, the shared one included.
    """

    experts: int
    top_k: int
    hidden: int
    scoring: Scoring = Scoring.SOFTMAX
    weighting: Weighting = Weighting.NORMALISED
    groups: int = 1
    top_groups: int = 1
    scale: float = 1.0
    shared_hidden: int = 0
    dispatch: Dispatch = Dispatch.DROPLESS
    capacity_factor: float = 1.25
    load_balance: float = 0.0
    bias_rate: float | None = None
    biases: Biases = Biases.NONE
    activation: Activation = Activation.SILU

    def __post_init__(self):
        require_positive(self, "experts", "top_k", "hidden", "groups", "top_groups")
        require_choice(
            self,
            scoring=Scoring,
            weighting=Weighting,
            dispatch=Dispatch,
            biases=Biases,
            activation=Activation,
        )
        require(self.top_k <= self.experts, "top_k", self.top_k, f"at most experts={self.experts}")
        self._require_groups()
        require_number(self, "scale", math.ulp(0.0), math.inf, "a number above 0")
        require_number(self, "capacity_factor", math.ulp(0.0), math.inf, "a number above 0")
        require_number(self, "load_balance", 0.0, math.inf, "a number >= 0")
        shared = self.shared_hidden
        whole = isinstance(shared, int) and not isinstance(shared, bool) and shared >= 0
        require(whole, "shared_hidden", shared, "a whole number >= 0, 0 for no shared expert")
        if self.bias_rate is not None:
            require_number(self, "bias_rate", 0.0, math.inf, "a number >= 0, or none for no routing bias")

    def _require_groups(self):
        groups, top = self.groups, self.top_groups
        require(self.experts % groups == 0, "groups", groups, f"a divisor of experts={self.experts}")
        size = self.experts // groups
        require(groups == 1 or size >= 2, "groups", groups, "groups of two experts or more, which score them")
        require(top <= groups, "top_groups", top, f"at most groups={groups}")
        rule = f"enough groups of {size} experts for top_k={self.top_k}"
        require(top * size >= self.top_k, "top_groups", top, rule)

    def capacity(self, tokens: int) -> int:
        """Returns the largest number of tokens that one expert takes of a row of ``tokens`` with ``dropping``."""
        share = self.capacity_factor * tokens * self.top_k / self.experts
        return min(tokens, math.ceil(share))
