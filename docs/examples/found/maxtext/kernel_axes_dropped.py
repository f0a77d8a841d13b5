"""Qwen3-Next: the scale of the last norm loses its axes in NNX."""

from small import SIDES, paths, side

S = (
    "model_name=qwen3-next-80b-a3b",
    "base_num_decoder_layers=8",
    "gdn_key_head_dim=8",
    "gdn_value_head_dim=8",
    "gdn_chunk_size=8",
    "gdn_num_key_heads=2",
    "gdn_num_value_heads=4",
    "ici_fsdp_parallelism=4",
    "ici_tensor_parallelism=2",
)
for name, is_nnx in SIDES.items():
    placed = {
        path: str(held.spec) for path, held in paths(side(is_nnx, *S)[4]).items() if "opt_state" not in path
    }
    print(name, {path: spec for path, spec in placed.items() if "decoder_norm" in path})
