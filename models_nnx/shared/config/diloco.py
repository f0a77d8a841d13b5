"""DiLoCo: replicas that train apart and meet now and then."""

import dataclasses
import math

from models_nnx.shared.config.checks import require, require_number, require_positive

__all__ = ["DilocoConfig"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DilocoConfig:
    """How replicas meet; with one fragment, no delay and no inner share it is plain DiLoCo, else the streaming one.

    Args:
        replicas: R, how many train apart; a multiple of the mesh axis ``replica``.
        period: H, steps from one meeting of a fragment to its next.
        fragments: F, parts of the model that meet in turn, one every H / F steps; divides H.
        delay: V, steps after a meeting at which replicas take its result; less than H / F.
        inner_share: a, what a replica keeps of its own: it goes on with ``a * inner + (1 - a) * outer``.
        learning_rate: of the outer update.
        momentum: of the outer update, Nesterov's.
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
        require(self.replicas > 1, "diloco.replicas", self.replicas, "at least 2: one alone meets nobody")
        require(H % F == 0, "diloco.fragments", F, f"a divisor of period={H}")
        whole = isinstance(V, int) and not isinstance(V, bool)
        rule = f"a whole number in [0, period / fragments) = [0, {self.gap}): the next fragment meets then"
        require(whole and 0 <= V < self.gap, "diloco.delay", V, rule)
        share = self.inner_share
        require(0.0 <= share <= 1.0, "diloco.inner_share", share, "a share in [0, 1]")
        require_number(self, "learning_rate", math.ulp(0.0), math.inf, "a number above 0")
        require_number(self, "momentum", 0.0, 1.0, "a rate in [0, 1)")

    @property
    def gap(self) -> int:
        """Steps from one meeting to the next, whichever fragment's."""
        return self.period // self.fragments
