"""`constrain` and `out_sharding` place arrays by the rules, in both modes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from meshes import make_mesh, parse_mesh

from models_nnx.shared import sharding
from models_nnx.shared.sharding import DEFAULT_RULES, ShardingError, ShardMode

MESHES = (
    "data8.context1",
    "fsdp8.tensor1",
    "fsdp4.tensor2.context1",
    "fsdp2.fsdp_transpose2.tensor2.expert1",
    "data2.fsdp2.context2.tensor1",
    "data4.expert2.fsdp1",
)
BTD = ("activation_batch", "activation_length", "activation_embed")
BTF = ("activation_batch", "activation_length", "activation_mlp")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ShardMode)
@pytest.mark.parametrize("text", MESHES)
def test_constrain_puts_the_array_there(mode, text):
    mesh = make_mesh(parse_mesh(text), mode)
    x_BTF = jnp.asarray(np.random.default_rng(0).normal(size=(8, 4, 6)), jnp.float32)
    expected = sharding.named_sharding(BTF, x_BTF.shape, DEFAULT_RULES, mesh)
    assert any(expected.spec)

    def constrained(x):
        return sharding.constrain(x * 2, BTF, DEFAULT_RULES)

    with jax.set_mesh(mesh):
        got, eager = jax.jit(constrained)(x_BTF), constrained(x_BTF)
        jaxpr = str(jax.make_jaxpr(constrained)(x_BTF))
        gradient = jax.jit(jax.grad(lambda x: constrained(x).sum()))(x_BTF)
        lowered = jax.jit(constrained).lower(x_BTF).as_text()
    assert got.sharding.is_equivalent_to(expected, 3) and eager.sharding.is_equivalent_to(expected, 3)
    assert sharding.canonical_spec(got.sharding.spec, 3, mesh) == expected.spec
    assert jaxpr.count("sharding_constraint") == (mode is ShardMode.AUTO)
    assert jaxpr.count("= reshard") == (mode is ShardMode.EXPLICIT)
    assert lowered.count("sdy.sharding_constraint") >= 1
    if mode is ShardMode.AUTO:
        assert lowered.count("sdy.sharding_constraint") == 1
    np.testing.assert_array_equal(got, x_BTF * 2)
    np.testing.assert_array_equal(gradient, np.full(x_BTF.shape, 2, np.float32))


def test_constrain_without_a_mesh_changes_nothing():
    x_BTF = jnp.ones((5, 3, 7))
    assert sharding.constrain(x_BTF, BTF, DEFAULT_RULES) is x_BTF
    with jax.set_mesh(make_mesh({}, ShardMode.AUTO)):
        assert sharding.constrain(x_BTF, BTF, DEFAULT_RULES) is x_BTF
        assert sharding.out_sharding(BTF, x_BTF.shape, DEFAULT_RULES) is None
    lowered = jax.jit(lambda x: sharding.constrain(x, BTF, DEFAULT_RULES)).lower(x_BTF).as_text()
    assert "sharding_constraint" not in lowered


@pytest.mark.slow
@pytest.mark.parametrize("mode", ShardMode)
def test_constrain_under_scan_remat_vmap_and_grad(mode):
    mesh = make_mesh(parse_mesh("stage2.fsdp2.tensor2.context1"), mode)
    rng = np.random.default_rng(1)
    x_SBTD, w_SLDF = rng.normal(size=(2, 4, 3, 6)), rng.normal(size=(2, 5, 6, 8)) / 3

    def layer(x_BTD, w_DF):
        out = sharding.out_sharding(BTF, (*x_BTD.shape[:2], w_DF.shape[1]), DEFAULT_RULES)
        h_BTF = sharding.constrain(
            jnp.einsum("btd,df->btf", x_BTD, w_DF, out_sharding=out), BTF, DEFAULT_RULES
        )
        out = sharding.out_sharding(BTD, x_BTD.shape, DEFAULT_RULES)
        y_BTD = jnp.einsum("btf,df->btd", jnp.tanh(h_BTF), w_DF, out_sharding=out)
        return sharding.constrain(x_BTD + y_BTD, BTD, DEFAULT_RULES), None

    def loss(x_SBTD, w_SLDF, spmd_axis_name):
        stage = jax.checkpoint(lambda x, w: jax.lax.scan(layer, x, w)[0])
        return (jax.vmap(stage, spmd_axis_name=spmd_axis_name)(x_SBTD, w_SLDF) ** 2).sum()

    x, w = (np.asarray(a, np.float32) for a in (x_SBTD, w_SLDF))
    expected = jax.jit(jax.grad(lambda w: loss(x, w, None)))(jnp.asarray(w))
    with jax.set_mesh(mesh):
        names = ("stage", "layers", "embed", "mlp")
        placed = sharding.named_sharding(names, w.shape, DEFAULT_RULES, mesh)
        spread = jax.device_put(w, placed)
        states = jax.device_put(x, NamedSharding(mesh, P("stage", "fsdp", None, None)))
        got = jax.jit(jax.grad(lambda w, x: loss(x, w, "stage")), out_shardings=placed)(spread, states)
    assert got.sharding.spec == P("stage", None, "fsdp", "tensor")
    np.testing.assert_allclose(got, expected, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("mode", ShardMode)
@pytest.mark.parametrize("manual", [{"fsdp"}, {"fsdp", "tensor"}])
def test_constrain_leaves_manual_axes_out(mode, manual):
    mesh = make_mesh(parse_mesh("fsdp2.tensor2"), mode)
    seen = []

    def local(x_BTF):
        # 3 rows are local: dividing them by fsdp once more would be an error.
        seen.append(x_BTF.shape)
        return sharding.constrain(x_BTF, BTF, DEFAULT_RULES)

    with jax.set_mesh(mesh):
        mapped = jax.shard_map(local, in_specs=P("fsdp"), out_specs=P("fsdp"), axis_names=manual)
        x_BTF = jax.device_put(np.ones((6, 5, 4), np.float32), NamedSharding(mesh, P("fsdp")))
        jaxpr = str(jax.make_jaxpr(mapped)(x_BTF))
        got = jax.jit(mapped)(x_BTF)
    assert set(seen) == {(3, 5, 4)}
    expected = P("fsdp", None, "tensor") if manual == {"fsdp"} else P("fsdp", None, None)
    assert sharding.canonical_spec(got.sharding.spec, 3, mesh) == expected
    assert jaxpr.count("sharding_constraint") + jaxpr.count("= reshard") == (manual == {"fsdp"})


def test_out_sharding_is_for_explicit_meshes_only():
    shape = (8, 4, 6)
    for mode, expected in ((ShardMode.AUTO, None), (ShardMode.EXPLICIT, P("fsdp", None, "tensor"))):
        with jax.set_mesh(make_mesh({"fsdp": 4, "tensor": 2}, mode)):
            assert sharding.out_sharding(BTF, shape, DEFAULT_RULES) == expected


def test_size_one_axis_kept_on_one_side_breaks_an_explicit_scan_and_constrain_does_not():
    mesh = make_mesh({"fsdp": 2, "context": 1}, ShardMode.EXPLICIT)

    def run(put):
        x_BTD = sharding.constrain(jnp.ones((4, 3, 5)), BTD, DEFAULT_RULES)
        return jax.lax.scan(lambda x, _: (put(x), None), x_BTD, None, length=2)[0]

    with jax.set_mesh(mesh):
        assert jax.jit(lambda: run(lambda x: sharding.constrain(x, BTD, DEFAULT_RULES)))().shape == (4, 3, 5)
        with pytest.raises(TypeError, match="carry"):
            jax.jit(lambda: run(lambda x: jax.sharding.reshard(x, P("fsdp", "context"))))()


def test_a_mesh_of_mixed_modes_is_an_error():
    types = (AxisType.Auto, AxisType.Explicit)
    mesh = jax.make_mesh((2, 2), ("fsdp", "tensor"), axis_types=types, devices=jax.devices()[:4])
    with (
        jax.set_mesh(mesh),
        pytest.raises(ShardingError, match=r"constrain: got axis types .*expected one mode; give"),
    ):
        sharding.constrain(jnp.ones((4, 4, 4)), BTF, DEFAULT_RULES)
