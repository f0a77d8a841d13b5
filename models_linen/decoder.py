"""The stack of blocks, scanned or unrolled, with rematerialisation inside the scan.

B batch, T position, D embed.
"""

from flax import linen as nn

from models_linen.blocks import Block
from models_nnx import ops
from models_nnx.config import LayerLayout, ModelConfig, RematPolicy

__all__ = ["Decoder"]

DETERMINISTIC = 4  # position of the argument in Block.__call__, counting self


class ScanBlock(Block):
    """A block with the signature of a scan body."""

    def __call__(self, x_BTD, segments_BT, positions_BT, deterministic: bool):
        return super().__call__(x_BTD, segments_BT, positions_BT, deterministic), None


def remat(block: type[Block], config: ModelConfig) -> type[Block]:
    """Returns ``block`` behind the remat policy of ``config``."""
    if config.remat.policy is RematPolicy.NONE:
        return block
    scanned = config.layout is LayerLayout.SCANNED
    return nn.remat(
        block,
        policy=ops.remat_policy(config.remat),
        prevent_cse=not scanned,
        static_argnums=(DETERMINISTIC,),
    )


class Decoder(nn.Module):
    """``config.layers`` blocks, one after the other."""

    config: ModelConfig

    def setup(self):
        cfg = self.config
        if cfg.layout is LayerLayout.SCANNED:
            stack = nn.scan(
                remat(ScanBlock, cfg),
                variable_axes={"params": cfg.scan_axis},
                split_rngs={"params": True, "dropout": True},
                in_axes=nn.broadcast,
                length=cfg.layers,
                metadata_params={nn.PARTITION_NAME: "layers"},
                check_constancy_invariants=False,
            )
            self.layers = stack(cfg)
        else:
            block = remat(Block, cfg)
            self.layers = [block(cfg) for _ in range(cfg.layers)]

    def __call__(self, x_BTD, segments_BT, positions_BT, deterministic: bool):
        if self.config.layout is LayerLayout.SCANNED:
            x_BTD, _ = self.layers(x_BTD, segments_BT, positions_BT, deterministic)
            return x_BTD
        for layer in self.layers:
            x_BTD = layer(x_BTD, segments_BT, positions_BT, deterministic)
        return x_BTD
