"""What a model holds beside its parameters, by exact type: values that layers sow, and state no gradient trains."""

from flax import nnx

__all__ = ["ForcedExperts", "MtpAcceptance", "MtpLosses", "Routed", "RoutingBias", "Sown"]


class Sown(nnx.Intermediate):
    """A value that a layer hands to the loss, such as its load balance; popped by the loss, never kept."""


class Routed(nnx.Intermediate):
    """Which experts a layer chose and by what margin; popped by whoever wants to know."""


class MtpLosses(nnx.Intermediate):
    """What a predictor of a further token costs; popped by the loss, before any generic pop could lose it."""


class MtpAcceptance(nnx.Intermediate):
    """How often a predictor of a further token agrees with the main model; popped by an evaluation."""


class RoutingBias(nnx.Variable):
    """A bias of the choice of experts, which follows their load from step to step."""


class ForcedExperts(nnx.Variable):
    """Choices a layer is to take instead of its own."""
