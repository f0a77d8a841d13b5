"""A comparison without a harness: both decoders' logits and gradients, compared with `assert_allclose`.

`python tests/campaigns harness.overhead` times `parity run` of the same cases against it.
"""

import dataclasses
import os

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy as np
from flax import nnx
from flax.traverse_util import flatten_dict
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import models_linen.train
import models_nnx.train
from models_linen.model import LanguageModel
from models_nnx.shared.config import LayerLayout, ModelConfig, TrainConfig
from models_nnx.shared.data import packed_batch
from models_nnx.shared.presets import preset, tiny

MESH = jax.make_mesh((4, 2), ("fsdp", "tensor"), axis_types=(AxisType.Auto, AxisType.Auto))
LAYOUTS = (LayerLayout.SCANNED, LayerLayout.UNROLLED)
INPUTS = ("tokens", "segments", "positions")
TRAIN = TrainConfig()


def batches() -> dict[str, jax.Array]:
    """Returns a packed batch, its rows cut over the mesh."""
    rng = np.random.default_rng(0)
    batch = {**packed_batch(8, 40, 0), "weights": rng.integers(0, 4, (8, 40)).astype(np.int32)}
    return jax.device_put(batch, NamedSharding(MESH, PartitionSpec("fsdp")))


def placed(tree, specs):
    """Returns a state placed by its specs."""
    return jax.tree.map(lambda leaf, spec: jax.device_put(leaf, NamedSharding(MESH, spec)), tree, specs)


def compare(config: ModelConfig) -> None:
    """Compares the twins of a config: logits, then gradients."""
    batch, key = batches(), jax.random.key(0)
    model = nnx.eval_shape(lambda: models_nnx.train.create(config, TRAIN, key)).model
    graphdef, shapes = nnx.split(model, nnx.Param)
    boxed = jax.jit(lambda key: models_linen.train.create(config, TRAIN, key, batch=batch))(key)
    specs = models_linen.train.state_specs(config, TRAIN, boxed, MESH)
    params = placed(models_linen.train.unbox(boxed).params, specs.params)

    state = nnx.from_flat_state(
        [(path, leaf.replace(flatten_dict(params)[path])) for path, leaf in nnx.to_flat_state(shapes)]
    )

    @jax.jit
    def linen_logits(params):
        return LanguageModel(config).apply({"params": params}, *(batch[name] for name in INPUTS))

    @jax.jit
    def nnx_logits(state):
        return nnx.merge(graphdef, state)(*(batch[name] for name in INPUTS))

    @jax.jit
    @jax.grad
    def linen_grads(params):
        total, (weight, *_) = models_linen.train.loss_sums(config, TRAIN, {"params": params}, batch)
        return total / weight

    @jax.jit
    @jax.grad
    def nnx_grads(state):
        total, (weight, *_) = models_nnx.train.loss_sums(nnx.merge(graphdef, state), TRAIN, batch)
        return total / weight

    with jax.set_mesh(MESH):
        np.testing.assert_allclose(nnx_logits(state), linen_logits(params), rtol=1e-2, atol=1e-2)
        right = dict(nnx.to_flat_state(nnx_grads(state)))
        for path, left in flatten_dict(linen_grads(params)).items():
            np.testing.assert_allclose(right[path][...], left, rtol=1e-2, atol=1e-2, err_msg="/".join(path))


if __name__ == "__main__":
    for layout in LAYOUTS:
        compare(dataclasses.replace(tiny(preset("llama2-70b")), layout=layout))
    print("the same logits and gradients")
