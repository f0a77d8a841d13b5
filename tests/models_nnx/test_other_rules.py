"""Placement on explicit meshes with non-default rules: each array is placed like its partner."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from campaigns.matrix.factors import CROSSED, REPLICATED, WHOLE_ACTIVATIONS
from flax import nnx

from models_nnx.model import LanguageModel
from models_nnx.rngs import PathRngs
from models_nnx.shared import ops
from models_nnx.shared.config import Biases, Sinks
from models_nnx.shared.presets import preset, tiny
from models_nnx.shared.sharding import constrain
from parity.builds.meshes import MeshSpec

BASE = dataclasses.replace(tiny(preset("llama2-70b")), layers=2)
SPECIAL = {"sinks": {"sinks": Sinks.LEARNED}, "biases": {"biases": Biases.TRAINED}}


def explicit():
    return jax.set_mesh(MeshSpec.parse("fsdp2.tensor2-explicit").on(jax.devices()))


@pytest.mark.parametrize(
    "rules", [CROSSED, REPLICATED, WHOLE_ACTIVATIONS], ids=["crossed", "replicated", "whole"]
)
@pytest.mark.parametrize("special", SPECIAL)
def test_sinks_and_biases_move_to_the_placement_of_heads(special, rules):
    attention = dataclasses.replace(BASE.attention, **SPECIAL[special])
    config = dataclasses.replace(BASE, attention=attention, rules=rules)
    tokens_BT = jax.ShapeDtypeStruct((8, 16), jnp.int32)

    def logits(tokens_BT):
        model = LanguageModel(config, rngs=PathRngs({"params": jax.random.key(0)}))
        for _, leaf in nnx.to_flat_state(nnx.state(model, nnx.Param)):
            axes = leaf.get_metadata()["out_sharding"]
            leaf.set_value(constrain(leaf[...], axes, rules))
        return model(tokens_BT, tokens_BT, tokens_BT)

    with explicit():
        assert jax.eval_shape(logits, tokens_BT).shape == (8, 16, BASE.vocab)


def test_gradients_accumulate_in_their_placement(compiled_as_users_do):
    weights = np.random.default_rng(5).normal(size=(4, 6)).astype(np.float32)
    rows = np.random.default_rng(6).normal(size=(8, 4)).astype(np.float32)

    def gradients(batch, key):
        return jax.grad(lambda w: jnp.sum(jnp.sin(batch @ w)))(placed)

    with explicit():
        placed = jax.device_put(weights, jax.P("fsdp", "tensor"))
        got = jax.jit(lambda batch: ops.accumulate(gradients, batch, 2, None))(rows)
        assert jax.typeof(got).sharding.spec == jax.P("fsdp", "tensor")
    np.testing.assert_allclose(got, rows.T @ np.cos(rows @ weights), rtol=2e-5)
