"""Variables of a model, distinguished by exact type: parameters, sown values, state that no gradient trains."""

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
    """Returns a parameter with logical axes; it is placed with its state, so that it can be created without a mesh."""
    return nnx.Param(value, out_sharding=axes, eager_sharding=False)


class Sown(nnx.Intermediate):
    """A value that a layer passes to the loss, such as its load balance; popped by the loss, never kept."""


class Routed(nnx.Intermediate):
    """Preferred experts of a layer, and their margin; popped by the loss and by evaluations."""


class MtpLosses(nnx.Intermediate):
    """Loss of a predictor of a further token; popped by the loss, before any generic pop could discard it."""


class MtpAcceptance(nnx.Intermediate):
    """Weight of the tokens on which a predictor and the main model agree; popped by an evaluation."""


class RoutingBias(nnx.Variable):
    """A bias of the choice of experts, updated from their load after each step."""


class ForcedExperts(nnx.Variable):
    """Choices that replace those of a layer's router."""


class OuterParam(nnx.Variable):
    """A parameter from the last synchronisation; not an ``nnx.Param``, because gradients train those."""


class OuterMomentum(nnx.Variable):
    """The momentum of an outer update."""


class OuterStep(nnx.Variable):
    """Number of steps that each replica has made."""
