"""indexer_sparse_training=False: NNX makes a norm and a head that Linen never makes."""

import re

from flax import nnx
from small import paths, side

S = (
    "model_name=deepseek3-tiny",
    "base_num_decoder_layers=3",
    "q_lora_rank=8",
    "use_indexer=True",
    "indexer_loss_scaling_factor=0.1",
    "indexer_sparse_training=False",
)
in_linen = {name.removeprefix("params/") for name in paths(side(False, *S)[3].params)}
in_nnx = {
    re.sub("/value$", "", name) for name in paths(nnx.split_state(side(True, *S)[3].model, nnx.Param, ...)[0])
}
print("in NNX only:", sorted(in_nnx - in_linen))
print("in Linen only:", sorted(in_linen - in_nnx))
