"""gemma4 with a number of layers that is no multiple of six: other names and layouts."""

from small import SIDES, paths, side

S = ("model_name=gemma4-26b", "base_num_decoder_layers=7", "global_head_dim=16", "sliding_window_size=8")
for name, is_nnx in SIDES.items():
    found = {path for path in paths(side(is_nnx, *S)[3]) if "opt_state" not in path}
    print(name, sorted(path for path in found if "emainder" in path or "ToLinen" in path)[:1])
