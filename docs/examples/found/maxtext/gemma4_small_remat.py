"""gemma4-small: NNX rematerialises each layer, Linen none."""

import re

from small import SIDES, traced

S = (
    "model_name=gemma4-e2b",
    "base_num_decoder_layers=10",
    "num_kv_shared_layers=5",
    "scan_layers=False",
    "global_head_dim=16",
    "sliding_window_size=8",
    "hidden_size_per_layer_input=8",
    "vocab_size_per_layer_input=64",
)
for name, is_nnx in SIDES.items():
    print(name, "rematerialised calls:", len(re.findall(r"= (?:checkpoint|remat2?)\[", traced(is_nnx, *S))))
