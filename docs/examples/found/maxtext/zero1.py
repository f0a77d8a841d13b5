"""ZeRO-1: the moments of one weight are cut along other dimensions."""

from small import SIDES, paths, side

S = (
    "model_name=llama2-7b",
    "shard_optimizer_over_data=True",
    "ici_data_parallelism=2",
    "ici_fsdp_parallelism=4",
)
for name, is_nnx in SIDES.items():
    for path, held in paths(side(is_nnx, *S)[4]).items():
        if "mu/" in path and "/wo/kernel" in path:
            print(name, path, held.spec)
