"""A finding on a leaf names the lines that make it on each side, in the first line and in the sentence of a bisect."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx

import parity
from parity.bisect.report import _declared
from parity.compare.session import Session
from parity.ir.location import result_source
from parity.run.explain import explain
from parity.run.run import run_case

D, F = 4, 6


def scaled(scale):
    def init(key, shape, dtype=jnp.float32):
        return scale * jax.random.normal(key, shape, dtype)

    return init


class LinenLayer(linen.Module):
    def setup(self):
        init = linen.with_partitioning(scaled(0.1), ("in", "out"))
        self.inner = self.param("inner", init, (D, D))

    def __call__(self, x):
        return jnp.tanh(x @ self.inner)


class LinenNet(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(F, name="head")(LinenLayer(name="layer")(x))


class Layer(nnx.Module):
    def __init__(self, rngs, axes=("in", "out"), scale=0.1):
        inner = scaled(scale)(rngs.params(), (D, D))
        self.inner = nnx.Param(inner, out_sharding=axes, eager_sharding=False)

    def __call__(self, x):
        return jnp.tanh(x @ self.inner)


class Net(nnx.Module):
    def __init__(self, rngs, head=(), **layer):
        self.layer = Layer(rngs, **layer)
        self.head = nnx.Linear(D, F, rngs=rngs, **dict(head))

    def __call__(self, x):
        return self.head(self.layer(x))


class LinenStack(linen.Module):
    @linen.compact
    def __call__(self, x):
        return jnp.sum(self.stacked()(name="layers")(x), 0)

    def stacked(self):
        options = {"variable_axes": {"params": 0}, "split_rngs": {"params": True}, "in_axes": None}
        names = {linen.PARTITION_NAME: "layers"}
        return linen.vmap(LinenLayer, axis_size=3, metadata_params=names, **options)


class NnxStack(nnx.Module):
    def __init__(self, rngs, name="layers"):
        self.layers = self.stacked(name)(rngs)

    def stacked(self, name):
        create = nnx.vmap(Layer, transform_metadata={nnx.PARTITION_NAME: name} if name else {})
        return nnx.split_rngs(splits=3)(create)

    def __call__(self, x):
        return jnp.sum(nnx.vmap(lambda layer, x: layer(x), in_axes=(0, None))(self.layers, x), 0)


def failure(linen: type = LinenNet, nnx: type = Net, **edit):
    """Returns a case's first line, and the sentence of a bisect whose searches find nothing."""
    pair = parity.twins(
        "net",
        linen=linen,
        nnx=functools.partial(nnx, **edit),
        inputs={"x": np.random.default_rng(0).normal(size=(3, D)).astype("float32")},
        loss=lambda out, batch: jnp.mean(out**2),
        programs=("forward",),
    )
    (case,) = pair.cases({})
    result = run_case(case, Session())
    found = explain(case.id, result.channels)
    return found.line if found else "", _declared(result)


def test_equal_sides_pass():
    assert not failure()[0] and not failure(LinenStack, NnxStack)[0]


@pytest.mark.parametrize("name", ["layer", ""])
def test_the_first_line_names_the_lines_that_stack_the_leaf(name):
    """Whose stacked axis has another name, or none."""
    line, _ = failure(LinenStack, NnxStack, name=name)
    assert "stacked by the candidate at " in line and "in NnxStack.__init__" in line, line
    assert "made by the reference at " in line and "in LinenStack.__call__" in line, line


@pytest.mark.parametrize(
    ("edit", "channel", "places"),
    [
        ({"axes": ("out", "in")}, "tree", ("in LinenLayer.setup", "in Layer.__init__")),
        ({"scale": 0.2}, "rng", ("in LinenLayer.setup", "in Layer.__init__")),
        ({"head": {"use_bias": False}}, "tree", ("in LinenNet.__call__",)),
        ({"head": {"param_dtype": jnp.bfloat16}}, "tree", ("in LinenNet.__call__", "in Net.__init__")),
    ],
    ids=["axes", "scale", "bias", "dtype"],
)
def test_the_first_line_names_the_lines_that_make_the_leaf(edit, channel, places):
    line, sentence = failure(**edit)
    assert line.startswith(f"{channel} failed")
    named = [rf"test_sources\.py:\d+ {place}" for place in places]
    assert all(re.search(place, text) for place in named for text in (line, sentence)), (line, sentence)


def moments():
    return optax.adam(0.1)


def momentum():
    return optax.sgd(0.1, momentum=0.9)


class Trainer(nnx.Module):
    def __init__(self, key, optimizer):
        self.params = Layer(nnx.Rngs(params=key), axes=None)
        self.optimizer = nnx.Optimizer(self.params, optimizer(), wrt=nnx.Param)


def linen_trainer(optimizer, key):
    params = {"inner": scaled(0.1)(key, (D, D))}
    return {"params": params, "opt_state": optimizer().init(params), "step": jnp.zeros((), jnp.uint32)}


def trained(state, batch):
    return state, {"loss": jnp.sum(batch["x"])}


def test_the_first_line_names_the_function_that_makes_an_optimizer():
    pair = parity.twin_programs(
        "trained",
        linen=parity.CustomSide(
            create=functools.partial(linen_trainer, moments),
            programs={"train_step": trained},
            flavour=parity.Flavour.LINEN,
        ),
        nnx=parity.CustomSide(
            create=functools.partial(Trainer, optimizer=momentum),
            programs={"train_step": trained},
            flavour=parity.Flavour.NNX,
        ),
        inputs=lambda seed: {"x": np.ones((3, D), np.float32)},
    )
    (case,) = pair.cases({})
    found = explain(case.id, run_case(case, Session(), ("tree",)).channels)
    assert found is not None and found.line.startswith("tree failed")
    words = r"made by the reference at \S+ in linen_trainer.*, made at \S+ in moments"
    assert re.search(words, " ".join((found.line, *found.rest[:1]))), found


def function_of(jaxpr, variable):
    source = result_source(jaxpr, variable)
    return source.own[0].function if source else ""


def test_zeros_of_a_stack_are_made_where_a_layer_makes_them():
    class Zeros(nnx.Module):
        def __init__(self, rngs):
            self.some = nnx.Param(jnp.zeros(D))

    def stacked(key):
        return nnx.state(nnx.split_rngs(splits=3)(nnx.vmap(Zeros))(nnx.Rngs(key)))

    jaxpr = jax.make_jaxpr(stacked)(jax.random.key(0)).jaxpr
    assert function_of(jaxpr, jaxpr.outvars[0]).endswith("Zeros.__init__")
    assert result_source(jaxpr, jaxpr.invars[0]) is None


def test_a_branch_or_a_loop_is_named_itself():
    def made(key):
        branch = jax.lax.cond(key[0] > 0, lambda: jnp.sin(key[1]), lambda: jnp.cos(key[1]))
        return branch, jax.lax.while_loop(lambda x: x < 3, lambda x: x * 2, key[0])

    jaxpr = jax.make_jaxpr(made)(jnp.ones(2)).jaxpr
    assert {function_of(jaxpr, out).rpartition(".")[2] for out in jaxpr.outvars} == {"made"}


class LinenGate(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(D, name="head")(x) * self.param("opening", linen.initializers.constant(0.3), ())


class Gate(nnx.Module):
    def __init__(self, rngs):
        self.head = nnx.Linear(D, D, rngs=rngs)
        self.gate = nnx.Param(jnp.float32(0.2))

    def __call__(self, x):
        return self.head(x) * self.gate[...]


def test_the_first_line_names_the_lines_that_declare_a_leaf_of_a_constant():
    line, _ = failure(LinenGate, Gate)
    assert "reference starts 0.3, candidate starts 0.2" in line, line
    assert "in LinenGate.__call__" in line and "in Gate.__init__" in line, line
