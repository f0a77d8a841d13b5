"""Harmless differences of stock Flax between its two flavours."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx
from jax.sharding import PartitionSpec as P

import parity
from parity.builds.meshes import MeshSpec
from parity.compare.unpaired import with_counters_of
from parity.ir.stablehlo.dtypes import read_dtypes
from parity.run.request import Request
from parity.run.run import case_runner
from parity.values.rng.audit import audit, repeated_keys

D, H, F = 12, 6, 3


# --- dots ---


def kinds(function, *arguments):
    return [one.kind for one in read_dtypes(jax.jit(function).lower(*arguments))]


def test_a_root_of_a_constant_is_no_sensitive_operation():
    x = jnp.ones((5, 7))
    assert kinds(lambda x: x / jnp.sqrt(jnp.asarray(7.0)), x) == []
    assert kinds(lambda x: x / jnp.sqrt(jnp.exp(jnp.float32(2.0)) + 1), x) == []


def test_a_root_of_a_scalar_argument_or_of_an_array_is_one():
    assert kinds(lambda s: jnp.sqrt(s), 2.0) == ["sqrt"]
    assert kinds(lambda s: jnp.sqrt(s * 2 + 1), 2.0) == ["sqrt"]
    assert kinds(lambda x: jnp.sqrt(x), jnp.ones((5,))) == ["sqrt"]
    assert kinds(lambda x: jnp.sqrt(x.sum()), jnp.ones((5,))) == ["sum", "sqrt"]


def test_an_outer_product_multiplies_only():
    angles = functools.partial(jnp.einsum, "bt,f->btf")
    assert kinds(angles, jnp.ones((2, 5)), jnp.ones(3)) == ["outer product"]
    assert kinds(lambda x, y: jnp.einsum("bt,bf->tf", x, y), jnp.ones((2, 5)), jnp.ones((2, 3))) == ["dot"]


class LinenAttention(linen.Module):
    @linen.compact
    def __call__(self, x):
        x = linen.MultiHeadDotProductAttention(num_heads=2, name="attention")(x)
        return linen.Dense(F, name="out")(x)


class NnxAttention(nnx.Module):
    def __init__(self, rngs):
        self.attention = nnx.MultiHeadAttention(num_heads=2, in_features=D, decode=False, rngs=rngs)
        self.out = nnx.Linear(D, F, rngs=rngs)

    def __call__(self, x):
        return self.out(self.attention(x))


@pytest.mark.slow
def test_attention_of_both_flavours_multiplies_in_the_same_types(compare):
    channels = ("program", "tree", "dots")
    found = compare(LinenAttention, NnxAttention, programs=("forward",), channels=channels)
    assert found.verdicts("tree") == found.verdicts("dots") == {"forward": "equal"}


# --- counters ---


def test_counters_are_compared_as_integers():
    reference = {"step": np.int32(3), "ids": np.arange(5, dtype=np.int32), "w": np.float32(2)}
    candidate = {"step": np.uint32(3), "ids": np.arange(5, dtype=np.uint32), "w": np.float16(2)}
    found = with_counters_of(
        {name: np.asarray(array) for name, array in reference.items()},
        {name: np.asarray(array) for name, array in candidate.items()},
    )
    assert {name: str(array.dtype) for name, array in found.items()} == {
        "step": "int32",
        "ids": "uint32",
        "w": "float16",
    }


def test_a_counter_that_does_not_fit_stays_as_it_is():
    found = with_counters_of({"n": np.asarray(np.int32(3))}, {"n": np.asarray(np.uint32(2**31 + 3))})
    assert found["n"].dtype == np.uint32


# --- draws ---


def test_draws_that_nothing_depends_on_repeat_no_key():
    def step(key):
        jax.random.normal(key, (3,))
        return jax.random.normal(key, (5,))

    def twice(key):
        return jax.random.normal(key, (3,)), jax.random.normal(key, (5,))

    key = jax.random.key(7)
    dead, alive = (
        audit(jax.make_jaxpr(function)(key), lambda index, step: key) for function in (step, twice)
    )
    assert repeated_keys(dead, "candidate", "") == [] and len(dead.draws) == 1
    assert len(repeated_keys(alive, "candidate", "")) == 1


# --- axes of size one ---


def test_axes_of_size_one_split_nothing():
    mesh = MeshSpec.parse("data2.tensor1-auto")
    assert mesh.essential(P(("data", "tensor"), "tensor")) == P("data", None)
    assert mesh.essential(P("tensor")) == P(None)
    assert mesh.essential(P("data", None)) == P("data", None)
    explicit = MeshSpec.parse("data2.tensor1-explicit")
    assert explicit.essential(P("tensor")) == P("tensor")


class LinenDense(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(F, name="out")(jnp.tanh(linen.Dense(H, name="up")(x)))


class NnxDense(nnx.Module):
    def __init__(self, rngs):
        self.up, self.out = nnx.Linear(D, H, rngs=rngs), nnx.Linear(H, F, rngs=rngs)

    def __call__(self, x):
        return self.out(jnp.tanh(self.up(x)))


@pytest.mark.parametrize(("axis", "verdict"), [("tensor", "passed"), ("data", "failed")])
def test_specs_that_differ_in_axes_of_size_one_are_proved(cases_of, axis, verdict):
    (case,) = cases_of(LinenDense, NnxDense, programs=("grad",), meshes=("data2.tensor1-auto",))
    build = case.candidate()
    specs = {path: P(None, axis) if path.endswith("up/kernel") else P() for path in build.leaves}
    moved = dataclasses.replace(build, specs=lambda mesh: specs)
    case = dataclasses.replace(case, candidate=lambda: moved)
    channels = ("program", "tree", "sharding")
    result = case_runner(Request(channels=channels))(case)
    assert str(result.verdict) == verdict
    assert str(result.channels["program"].verdict) == ("proved" if verdict == "passed" else "unproved")


# --- rounding in bfloat16 that an optimizer amplifies ---

B = 24


def sign_step(product):
    """A side with a step as of Adam: a gradient of any size makes a step of one size."""

    def step(state, batch):
        weights = jnp.broadcast_to(state["params"]["w"], (B, F))
        x, w, c = (each.astype(jnp.bfloat16) for each in (batch["x"], weights, batch["c"]))
        gradient = jnp.sum(product(x, w, c).astype(jnp.float32), 0)
        after = state["params"]["w"] - 0.01 * gradient / (jnp.abs(gradient) + 1e-9)
        return {"params": {"w": after}}, jnp.sum(after)

    return parity.CustomSide(
        create=lambda key: {"params": {"w": jnp.ones(F)}},
        programs={"train_step": step},
        flavour=parity.Flavour.LINEN,
    )


@pytest.mark.slow
@pytest.mark.parametrize("first", [700, 1000, 1100, 1300])
@pytest.mark.parametrize(
    ("product", "verdict"),
    [(lambda x, w, c: x * (w * c), "passed"), (lambda x, w, c: x * (w - c), "failed")],
    ids=["order", "operation"],
)
def test_a_gradient_that_is_rounding_in_bfloat16_may_make_a_step_to_either_side(first, product, verdict):
    def batch(seed):
        """One column has a sum that is within the rounding of bfloat16, and far beyond that of float32."""
        rng = np.random.default_rng(seed + first)
        x, c = rng.normal(size=(B, F)) + 1.0, rng.uniform(1, 2, (B, F))
        x[:, 1] -= ((x * c)[:, 1].sum() - 8e-3) / c[:, 1].sum()
        return {"x": x.astype("float32"), "c": c.astype("float32")}

    sides = sign_step(lambda x, w, c: (x * w) * c), sign_step(product)
    pair = parity.twin_programs("sign", linen=sides[0], nnx=sides[1], inputs=batch)
    (result,) = map(case_runner(Request()), pair.cases({}))
    assert str(result.verdict) == verdict, result.sentence()
