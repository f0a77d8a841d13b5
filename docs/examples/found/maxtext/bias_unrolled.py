"""Unrolled DeepSeek 3: the routed bias never moves in Linen, and in one layer of NNX."""

import jax
import numpy as np
from flax import linen, nnx
from small import SIDES, paths, side

S = (
    "model_name=deepseek3-tiny",
    "base_num_decoder_layers=3",
    "q_lora_rank=8",
    "scan_layers=False",
    "routed_bias_update_rate=0.01",
    "learning_rate=0.0",
    "warmup_steps_fraction=0",
)
rng = np.random.default_rng(0)
for name, is_nnx in SIDES.items():
    cfg, mesh, create, _, _, step, shapes = side(is_nnx, *S)
    batch = {key: rng.integers(1, 16, x.shape).astype(np.int32) for key, x in shapes.items()}
    batch |= {f"{of}_segmentation": np.ones_like(batch["inputs"]) for of in ("inputs", "targets")}
    with jax.set_mesh(mesh), linen.logical_axis_rules(cfg.logical_axis_rules):
        state = nnx.state(create()) if is_nnx else create()
        new = jax.jit(step)(state, batch)[0]
    before = paths(state)
    for path, bias in paths(new).items():
        if "gate" in path and "bias" in path and "opt_state" not in path:
            print(name, path, "moved by", np.round(np.asarray(bias - before[path]), 4).tolist())
