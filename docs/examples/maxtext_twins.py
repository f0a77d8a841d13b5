"""MaxText 0.2.4's Linen and NNX decoders and their train steps as twins: see docs/maxtext.md."""

import dataclasses
import functools
import os
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen, nnx

import parity

os.environ.setdefault("DECOUPLE_GCLOUD", "TRUE")
from maxtext.common.train_state_nnx import TrainStateNNX
from maxtext.configs import pyconfig
from maxtext.trainers.pre_train import train
from maxtext.utils import maxtext_utils, model_creation_utils, sharding, train_utils

SMALL = {
    "run_name": "parity",
    "override_model_config": True,
    "log_config": False,
    "jax_cache_dir": "",
    "enable_checkpointing": False,
    "skip_jax_distributed_system": True,
    "hardware": "cpu",
    "base_output_directory": "maxtext_output",
    "dataset_type": "synthetic",
    "attention": "dot_product",
    "base_emb_dim": 16,
    "base_num_query_heads": 4,
    "base_num_kv_heads": 4,
    "base_mlp_dim": 32,
    "base_num_decoder_layers": 2,
    "head_dim": 8,
    "vocab_size": 64,
    "max_target_length": 16,
    "per_device_batch_size": 1,
    "learning_rate": 0.1,
    "warmup_steps_fraction": 0.0,
}
FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "llama2": {"model_name": "llama2-7b"},
}
BASE = os.path.join(os.path.dirname(pyconfig.__file__), "base.yml")
AXES = pyconfig.initialize(["", BASE], **SMALL).mesh_axes
MESHES = {"single": {}, "fsdp4.tensor2": {"fsdp": 4, "tensor": 2}}


def config(flavour: parity.Flavour, settings: tuple[tuple[str, Any], ...], mesh: jax.sharding.Mesh) -> Any:
    flag = flavour is parity.Flavour.NNX
    flags = dict.fromkeys(("enable_nnx", "pure_nnx", "pure_nnx_decoder"), flag)
    return pyconfig.initialize(["", BASE], **SMALL, **dict(settings), **flags)


def inputs(rows: int, length: int, seed: int) -> dict[str, np.ndarray]:
    """Packed rows: segments of several lengths, padding behind them, and a loss scale."""
    rng = np.random.default_rng(seed)
    cuts = np.sort(rng.integers(1, length, (rows, 3)), axis=1)
    at = np.arange(length)
    segments = 1 + sum((at >= cuts[:, [i]]).astype(np.int32) for i in range(3))
    segments = np.where(segments == 4, 0, segments).astype(np.int32)
    starts = np.concatenate([np.zeros((rows, 1), np.int64), cuts], axis=1)
    positions = (at - np.take_along_axis(starts, (segments - 1) % 4, axis=1)).astype(np.int32)
    tokens = rng.integers(0, SMALL["vocab_size"], (2, rows, length)).astype(np.int32)
    batch = {"inputs": tokens[0], "targets": tokens[1]}
    for name in ("inputs", "targets"):
        batch |= {f"{name}_position": positions, f"{name}_segmentation": segments}
    return batch | {"scale": np.asarray(rng.uniform(0.5, 8.0), np.float32)}


@functools.cache
def build(
    flavour: parity.Flavour, name: str, settings: tuple[tuple[str, Any], ...], mesh: jax.sharding.Mesh
) -> parity.Build:
    cfg = config(flavour, settings, mesh)
    rules = functools.partial(linen.partitioning.axis_rules, cfg.logical_axis_rules)
    if flavour is parity.Flavour.LINEN:
        model = model_creation_utils.from_config(cfg, mesh=mesh)
    else:
        make, model = model_creation_utils.create_nnx_abstract_model(cfg, mesh)
    _, optimizer = train_utils.create_training_optimizer(cfg, model)

    def create(key):
        with rules():
            if flavour is parity.Flavour.LINEN:
                return maxtext_utils.init_initial_state(model, optimizer, cfg, True, key)
            module = model_creation_utils.get_nnx_create_model_fn(cfg, mesh, rng_key=key)()
            return TrainStateNNX(module, nnx.Optimizer(module, optimizer, wrt=nnx.Param))

    def specs(state, mesh):
        with rules():
            if flavour is parity.Flavour.LINEN:
                tree = linen.logical_to_mesh_sharding(
                    linen.get_partition_spec(state), mesh, cfg.logical_axis_rules
                )
            else:
                tree = sharding.nnx_construct_named_sharding(state, mesh)
        return jax.tree.map(lambda held: held.spec, tree)

    def loss(state, params, batch):
        data = {name: array for name, array in batch.items() if name != "scale"}
        if flavour is parity.Flavour.LINEN:
            return train.loss_fn(model, cfg, data, jax.random.key(0), params)
        module = nnx.merge(*params, copy=True)
        return train.loss_fn(module, cfg, data, None, None)

    def forward(state, batch):
        names = ("inputs", "inputs_position", "inputs_segmentation")
        with rules():
            if flavour is parity.Flavour.LINEN:
                out = model.apply(state.params, *(batch[n] for n in names), enable_dropout=False)
            else:
                out = state.model(*(batch[n] for n in names), enable_dropout=False)
        return {"values": {"logits": out}}

    def train_step(state, batch):
        data = {name: array for name, array in batch.items() if name != "scale"}
        with rules():
            if flavour is parity.Flavour.LINEN:
                state, metrics = train.train_step(model, cfg, None, None, state, data, jax.random.key(0))
            else:
                state, metrics = train.train_step(
                    *nnx.split(state)[:1], cfg, None, None, nnx.split(state)[1], data
                )
        return {"values": metrics["scalar"], "state": state}

    made = parity.linen_build if flavour is parity.Flavour.LINEN else parity.nnx_build
    rows = cfg.micro_batch_size_to_train_on
    return made(
        f"{flavour} {name}",
        create,
        {"forward": (forward, {}), "train_step": (train_step, {"steps": 3, "donate": True})},
        specs=specs,
        inputs=functools.cache(functools.partial(inputs, rows, cfg.max_target_length)),
        input_specs=lambda batch, mesh: {
            n: sharding.get_input_data_sharding(cfg, mesh).spec if a.ndim else jax.sharding.PartitionSpec()
            for n, a in batch.items()
        },
    )


def cases(settings):
    return [
        parity.Case(
            id=f"{family}-{'scan' if scan else 'unroll'}/{program}@{mesh}",
            reference=functools.partial(
                build, parity.Flavour.LINEN, family, (*own.items(), ("scan_layers", scan))
            ),
            candidate=functools.partial(
                build, parity.Flavour.NNX, family, (*own.items(), ("scan_layers", scan))
            ),
            program=program,
            mesh=parity.MeshSpec(axes=tuple((axis, sizes.get(axis, 1)) for axis in AXES)),
            keys=parity.Keys.INDEPENDENT,
        )
        for family, own in FAMILIES.items()
        for scan in (True, False)
        for program in ("forward", "train_step")
        for mesh, sizes in MESHES.items()
    ]


PAIR = parity.Pair(name="maxtext", about="MaxText's decoders", cases=cases)
