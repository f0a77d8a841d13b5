"""What a model holds: parameters, and by exact type values that layers sow, and state no gradient trains."""

import jax
from flax import nnx

__all__ = [
    "ForcedExperts",
    "MtpAcceptance",
    "MtpLosses",
    "OuterMomentum",
    "OuterParam",
    "OuterStep",
    "Routed",
    "RoutingBias",
    "Sown",
    "param",
]


def param(value: jax.Array, axes: tuple[str | None, ...]) -> nnx.Param:
    """Returns a parameter with logical axes; it is placed where its state is, so that it may be made without a mesh."""
    return nnx.Param(value, out_sharding=axes, eager_sharding=False)


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


class OuterParam(nnx.Variable):
    """A parameter that replicas agreed on when they last met; no ``nnx.Param``, which gradients train."""


class OuterMomentum(nnx.Variable):
    """The momentum of an outer update."""


class OuterStep(nnx.Variable):
    """Number of steps that replicas made, each."""
