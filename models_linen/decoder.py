"""The stacks of blocks, scanned or unrolled, with rematerialisation inside the scan.

B batch, T position, D embed.
"""

from flax import linen as nn

from models_linen.batch_split import SplitBlock, SplitCycle
from models_linen.blocks import Block, Cycle
from models_linen.pipeline import Pipeline
from models_nnx.shared import ops
from models_nnx.shared.config import LayerLayout, ModelConfig, PipelinedStack, RematPolicy, Stack
from models_nnx.shared.sharding import constrain

__all__ = ["Decoder"]

BESIDE_PARAMS = ("sown", "routed", "routing_bias", "forced", "cache")  # stacked along axis 0
EMBEDDED = ("activation_batch", "activation_length", "activation_embed")
STATIC = (4, 5)  # positions of deterministic and caching in Block.__call__, counting self


class ScanBlock(Block):
    """A block with the signature of a scan body."""

    def __call__(self, x_BTD, segments_BT, positions_BT, deterministic: bool, caching=None):
        return super().__call__(x_BTD, segments_BT, positions_BT, deterministic, caching), None


class ScanCycle(Cycle):
    """A cycle with the signature of a scan body."""

    def __call__(self, x_BTD, segments_BT, positions_BT, deterministic: bool, caching=None):
        return super().__call__(x_BTD, segments_BT, positions_BT, deterministic, caching), None


class ScanSplitBlock(SplitBlock):
    """A block with the signature of a scan body; all parts of the batch are the carry."""

    def __call__(self, x, segments, positions, deterministic: bool, caching=None):
        return super().__call__(x, segments, positions, deterministic, caching), None


class ScanSplitCycle(SplitCycle):
    """A cycle with the signature of a scan body; all parts of the batch are the carry."""

    def __call__(self, x, segments, positions, deterministic: bool, caching=None):
        return super().__call__(x, segments, positions, deterministic, caching), None


def remat(block: type[nn.Module], config: ModelConfig, layout: LayerLayout) -> type[nn.Module]:
    """Returns ``block`` under the remat policy of ``config``."""
    if config.remat.policy is RematPolicy.NONE:
        return block
    scanned = layout is LayerLayout.SCANNED
    return nn.remat(
        block,
        policy=ops.remat_policy(config.remat),
        prevent_cse=not scanned,
        static_argnums=STATIC,
    )


def scanned(config: ModelConfig, stack: Stack) -> nn.Module:
    """Returns one block, or one cycle of them, whose parameters hold all repeats along ``config.scan_axis``."""
    single, split = len(stack.cycle) == 1, config.is_split(stack)
    block, cycle = (ScanSplitBlock, ScanSplitCycle) if split else (ScanBlock, ScanCycle)
    scan = nn.scan(
        remat(block if single else cycle, config, stack.layout),
        variable_axes={"params": config.scan_axis, **dict.fromkeys(BESIDE_PARAMS, 0)},
        split_rngs={"params": True, "dropout": True},
        in_axes=nn.broadcast,
        length=stack.repeats,
        metadata_params={nn.PARTITION_NAME: stack.axis},
        check_constancy_invariants=False,
    )
    return scan(config, stack.cycle[0] if single else stack.cycle)


class Decoder(nn.Module):
    """The stacks of ``config``, one after the other."""

    config: ModelConfig

    def setup(self):
        cfg = self.config
        for stack in cfg.stacks:
            if isinstance(stack, PipelinedStack):
                setattr(self, stack.name, Pipeline(cfg, Decoder))
                continue
            inner, block = (cfg.halved, SplitBlock) if cfg.is_split(stack) else (cfg, Block)
            if stack.layout is LayerLayout.SCANNED:
                setattr(self, stack.name, scanned(inner, stack))
                continue
            for name, layer in stack.layers.items():
                setattr(self, name, remat(block, inner, stack.layout)(inner, layer))

    def __call__(self, x_BTD, segments_BT, positions_BT, deterministic: bool, caching=None):
        inputs = (segments_BT, positions_BT, deterministic, caching)
        for stack in self.config.stacks:
            run = self._halves if self.config.is_split(stack) else self._run
            x_BTD = run(stack, x_BTD, inputs)
        return x_BTD

    def _run(self, stack: Stack, x, inputs: tuple):
        if isinstance(stack, PipelinedStack):
            return getattr(self, stack.name)(x, *inputs)
        if stack.layout is LayerLayout.SCANNED:
            return getattr(self, stack.name)(x, *inputs)[0]
        for name in stack.layers:
            x = getattr(self, name)(x, *inputs)
        return x

    def _halves(self, stack: Stack, x_BTD, inputs: tuple):
        """Runs a stack on halves of the batch, and places the joined result like ``x_BTD``."""
        segments_BT, positions_BT, deterministic, caching = inputs
        whole = caching is not None or self.is_initializing()
        arrays, parts, rules = (
            (x_BTD, segments_BT, positions_BT),
            1 if whole else ops.HALVES,
            self.config.rules,
        )
        x, segments, positions = (ops.in_halves(x, parts, self.config.halved.rules) for x in arrays)
        x = self._run(stack, x, (segments, positions, deterministic, caching))
        return constrain(ops.join_halves(x), EMBEDDED, rules)
