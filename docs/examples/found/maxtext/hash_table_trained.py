"""DeepSeek 4: Linen keeps moments for the table of token to expert."""

from small import SIDES, paths, side

S = (
    "model_name=deepseek4-tiny",
    "base_num_decoder_layers=4",
    "base_num_kv_heads=1",
    "q_lora_rank=8",
    "compress_ratios=[0,0,4,8]",
    "first_num_hash_layers=2",
    "routed_bias=False",
    "o_groups=2",
    "o_lora_rank=8",
)
for name, is_nnx in SIDES.items():
    print(name, sorted(path for path in paths(side(is_nnx, *S)[3]) if "tid2eid" in path.lower()))
