# ruff: noqa: E402
"""One side of MaxText 0.2.4's own train step, small enough for a CPU; install it as docs/maxtext.md says."""

import os
import re
import sys
from pathlib import Path

EIGHT = ("zero1", "tiling", "kernel_axes_dropped")
count = 8 if Path(sys.argv[0]).stem in EIGHT else 1
os.environ |= {"DECOUPLE_GCLOUD": "TRUE", "JAX_PLATFORMS": "cpu"}
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={count}"

import jax
from flax import linen, nnx
from maxtext.common.train_state_nnx import TrainStateNNX
from maxtext.configs import pyconfig
from maxtext.trainers.pre_train import train
from maxtext.utils import maxtext_utils, model_creation_utils, sharding, train_utils

SMALL = """run_name=x base_output_directory=out jax_cache_dir= log_config=False override_model_config=True
enable_checkpointing=False skip_jax_distributed_system=True hardware=cpu dataset_type=synthetic vocab_size=64
attention=dot_product base_emb_dim=16 base_num_query_heads=4 base_num_kv_heads=4 head_dim=8 base_mlp_dim=32
base_num_decoder_layers=2 max_target_length=16 per_device_batch_size=1 base_moe_mlp_dim=32 sparse_matmul=False
kv_lora_rank=8 v_head_dim=8 qk_nope_head_dim=8 qk_rope_head_dim=8 first_num_dense_layers=1 indexer_head_dim=8
indexer_n_heads=2 indexer_topk=4"""
DENSE = ("model_name=llama2-7b", "model_name=gemma4-e2b")
SIDES = {"Linen": False, "NNX  ": True}


def side(is_nnx, *settings):
    """Returns config, mesh, create, abstract state, its shardings, the train step, and a batch of shapes."""
    flags = [f"{flag}={is_nnx}" for flag in ("enable_nnx", "pure_nnx", "pure_nnx_decoder")]
    experts = (1, 1) if settings[0] in DENSE else (4, 2)
    flags += [f"num_experts={experts[0]}", f"num_experts_per_tok={experts[1]}"]
    cfg = pyconfig.initialize(["", *SMALL.split(), *settings, *flags])
    mesh, key = maxtext_utils.get_mesh_from_config(cfg), jax.random.PRNGKey(0)
    if is_nnx:
        model = model_creation_utils.create_nnx_abstract_model(cfg, mesh)[1]
    else:
        model = model_creation_utils.from_config(cfg, mesh=mesh)
    optimizer = train_utils.create_training_optimizer(cfg, model)[1]

    def create():
        if not is_nnx:
            return maxtext_utils.init_initial_state(model, optimizer, cfg, True, key)
        made = model_creation_utils.get_nnx_create_model_fn(cfg, mesh)()
        return TrainStateNNX(made, nnx.Optimizer(made, optimizer, wrt=nnx.Param))

    def step(state, batch):
        with linen.logical_axis_rules(cfg.logical_axis_rules):
            held = nnx.graphdef(nnx.eval_shape(create)) if is_nnx else model
            return train.train_step(held, cfg, placed, params, state, batch, *(() if is_nnx else (key,)))

    with linen.logical_axis_rules(cfg.logical_axis_rules):
        abstract, _, placed = maxtext_utils.get_abstract_state(cfg, mesh, create)
        params, placed = sharding.maybe_update_params_sharding_with_opt(cfg, placed)
    shapes = maxtext_utils.get_shaped_batch(cfg).items()
    batch = {name: jax.ShapeDtypeStruct(x.shape, x.dtype) for name, x in shapes}
    return cfg, mesh, create, abstract, placed, step, batch


def paths(tree):
    """Returns path -> leaf."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {"/".join(re.findall(r"\w+", jax.tree_util.keystr(path))): leaf for path, leaf in leaves}


def traced(is_nnx, *settings):
    """Returns the text of the traced train step."""
    _, mesh, _, abstract, _, step, batch = side(is_nnx, *settings)
    with jax.set_mesh(mesh):
        return str(jax.make_jaxpr(step)(abstract, batch))
