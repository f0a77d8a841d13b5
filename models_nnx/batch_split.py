"""Blocks that process a batch in parts, so that one part's experts communicate during the next part's attention.

B batch, T position, D embed, K choice of a token.
"""

from typing import ClassVar

from models_nnx.blocks import Block, Cycle
from models_nnx.rngs import PathRngs
from models_nnx.shared import ops

__all__ = ["SplitBlock", "SplitCycle"]


class SplitBlock(Block):
    """A block with experts that processes the parts of a batch one after the other; the parts are independent.

    Activations, segments and positions are tuples with an entry per part. Sown values are of all parts together.
    """

    def __call__(self, x, segments, positions, deterministic: bool, rngs: PathRngs | None, caching=None):
        outs, routings = [], []
        forced = self._forced(len(x))
        for x_BTD, segments_BT, positions_BT, forced_BTK in zip(x, segments, positions, forced, strict=True):
            x_BTD = self.attend(x_BTD, segments_BT, positions_BT, deterministic, rngs, caching)
            fed_BTD, routing = self.moe.routed(self.mlp_norm(x_BTD), segments_BT, forced_BTK)
            outs.append(self.add_fed(x_BTD, fed_BTD, deterministic, rngs))
            routings.append(routing)
        whole = ops.Routing(*map(ops.join_halves, zip(*routings, strict=True)))
        self.moe.record(whole, ops.join_halves(segments))
        return tuple(outs)

    def _forced(self, parts: int):
        forced_BTK = self.moe.forced_choices()
        if forced_BTK is None:
            return [None] * parts
        return ops.in_halves(forced_BTK, parts, self.config.rules)


class SplitCycle(Cycle):
    """A cycle of `SplitBlock`."""

    block: ClassVar[type[Block]] = SplitBlock
