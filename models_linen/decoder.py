"""The stacks of blocks, scanned or unrolled, with rematerialisation inside the scan.

B batch, T position, D embed.
"""

from flax import linen as nn

from models_linen.blocks import Block, Cycle
from models_nnx import ops
from models_nnx.config import LayerLayout, ModelConfig, RematPolicy, Stack

__all__ = ["Decoder"]

BESIDE_PARAMS = ("sown", "routed", "routing_bias", "forced", "cache")  # stacked along axis 0
STATIC = (4, 5)  # positions of deterministic and caching in Block.__call__, counting self


class ScanBlock(Block):
    """A block with the signature of a scan body."""

    def __call__(self, x_BTD, segments_BT, positions_BT, deterministic: bool, caching=None):
        return super().__call__(x_BTD, segments_BT, positions_BT, deterministic, caching), None


class ScanCycle(Cycle):
    """A cycle with the signature of a scan body."""

    def __call__(self, x_BTD, segments_BT, positions_BT, deterministic: bool, caching=None):
        return super().__call__(x_BTD, segments_BT, positions_BT, deterministic, caching), None


def remat(block: type[nn.Module], config: ModelConfig, layout: LayerLayout) -> type[nn.Module]:
    """Returns ``block`` behind the remat policy of ``config``."""
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
    single = len(stack.cycle) == 1
    scan = nn.scan(
        remat(ScanBlock if single else ScanCycle, config, stack.layout),
        variable_axes={"params": config.scan_axis, **dict.fromkeys(BESIDE_PARAMS, 0)},
        split_rngs={"params": True, "dropout": True},
        in_axes=nn.broadcast,
        length=stack.repeats,
        metadata_params={nn.PARTITION_NAME: "layers"},
        check_constancy_invariants=False,
    )
    return scan(config, stack.cycle[0] if single else stack.cycle)


class Decoder(nn.Module):
    """The stacks of ``config``, one after the other."""

    config: ModelConfig

    def setup(self):
        cfg = self.config
        for stack in cfg.stacks:
            if stack.layout is LayerLayout.SCANNED:
                setattr(self, stack.name, scanned(cfg, stack))
                continue
            for name, layer in stack.layers.items():
                setattr(self, name, remat(Block, cfg, stack.layout)(cfg, layer))

    def __call__(self, x_BTD, segments_BT, positions_BT, deterministic: bool, caching=None):
        for stack in self.config.stacks:
            if stack.layout is LayerLayout.SCANNED:
                x_BTD, _ = getattr(self, stack.name)(x_BTD, segments_BT, positions_BT, deterministic, caching)
                continue
            for name in stack.layers:
                x_BTD = getattr(self, name)(x_BTD, segments_BT, positions_BT, deterministic, caching)
        return x_BTD
