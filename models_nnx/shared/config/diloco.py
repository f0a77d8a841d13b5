"""DiLoCo: replicas that train separately and synchronise periodically."""

import dataclasses
import math

from models_nnx.shared.config.checks import require, require_number, require_positive

__all__ = ["DilocoConfig"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DilocoConfig:
    """Synchronisation of replicas; plain DiLoCo with one fragment, no delay and no inner share, else streaming DiLoCo.

    Args:
        replicas: R, number of replicas; a multiple of the size of the mesh axis ``replica``.
        period: H, steps from one synchronisation of a fragment to its next.
        fragments: F, parts of the model, of which one synchronises every H / F steps; divides H.
        delay: V, steps after a synchronisation at which replicas apply its result; less than H / F.
        inner_share: a, weight of a replica's own parameters: it continues with ``a * inner + (1 - a) * outer``.
        learning_rate: rate of the outer update.
        momentum: Nesterov momentum of the outer update.
    """

    replicas: int
    period: int
    fragments: int = 1
    delay: int = 0
    inner_share: float = 0.0
    learning_rate: float = 0.7
    momentum: float = 0.9

    def __post_init__(self):
        require_positive(self, "replicas", "period", "fragments")
        H, F, V = self.period, self.fragments, self.delay
        require(
            self.replicas > 1,
            "diloco.replicas",
            self.replicas,
            "at least 2: one replica has nothing to synchronise with",
        )
        require(H % F == 0, "diloco.fragments", F, f"a divisor of period={H}")
        whole = isinstance(V, int) and not isinstance(V, bool)
        rule = f"a whole number in [0, period / fragments) = [0, {self.gap}): the next fragment synchronises then"
        require(whole and 0 <= V < self.gap, "diloco.delay", V, rule)
        share = self.inner_share
        require(0.0 <= share <= 1.0, "diloco.inner_share", share, "a share in [0, 1]")
        require_number(self, "learning_rate", math.ulp(0.0), math.inf, "a number above 0")
        require_number(self, "momentum", 0.0, 1.0, "a rate in [0, 1)")

    @property
    def gap(self) -> int:
        """Steps from one synchronisation to the next, of any fragment."""
        return self.period // self.fragments
