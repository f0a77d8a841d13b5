"""qwix int8: other tiles of the weight gradients."""

import re
from collections import Counter

from small import SIDES, traced

TILES = re.compile(r"(\w+\[[\d,]*\] = reduce_max\[\s*axes=\([\d, ]*\))")
S = ("model_name=llama2-7b", "quantization=int8", "use_qwix_quantization=True")
linen, nnx = (Counter(TILES.findall(traced(is_nnx, *S))) for is_nnx in SIDES.values())
print("in Linen only:", dict(linen - nnx))
print("in NNX only:", dict(nnx - linen))
