"""Vocabulary tiles: Linen replicates all parameters inside the loss."""

import re
from collections import Counter

from small import SIDES, traced

S = ("model_name=llama2-7b", "num_vocab_tiling=2", "ici_fsdp_parallelism=4", "ici_tensor_parallelism=2")
WHOLE = re.compile(r":f32\[([\d,]+)\] = sharding_constraint\[(?:[^\]]|\n)*?spec=P(?:artitionSpec)?\(\)")
for name, is_nnx in SIDES.items():
    print(name, "float32 arrays constrained to P():", dict(Counter(WHOLE.findall(traced(is_nnx, *S)))))
