"""Builds of a small foreign model, as a user's project would have one, in both flavours."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx, struct
from jax.sharding import PartitionSpec

from parity.builds.build import Flavour, Group, linen_build, nnx_build
from parity.builds.tree import Role, flatten, to_host

IN, HIDDEN, OUT, ROWS = 3, 5, 2, 4
TX = optax.adam(1e-2)


class Foreign(nn.Module):
    """Two layers and running statistics; no bias that the normalisation would cancel."""

    @nn.compact
    def __call__(self, x):
        x = nn.BatchNorm(use_running_average=False, momentum=0.5)(nn.Dense(HIDDEN, use_bias=False)(x))
        return nn.Dense(OUT)(x)


@struct.dataclass
class LinenState:
    """State of its training loop."""

    params: dict
    batch_stats: dict
    opt_state: tuple


class Twin(nnx.Module):
    """The twin of `Foreign`, with different names."""

    def __init__(self, rngs):
        self.first = nnx.Linear(IN, HIDDEN, use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(HIDDEN, momentum=0.5, rngs=rngs)
        self.second = nnx.Linear(HIDDEN, OUT, rngs=rngs)

    def __call__(self, x):
        return self.second(self.norm(self.first(x)))


class TwinState(nnx.Module):
    """State of its training loop."""

    def __init__(self, key):
        self.model = Twin(nnx.Rngs(key))
        self.optimizer = nnx.Optimizer(self.model, TX, wrt=nnx.Param)


def create_linen(key):
    variables = Foreign().init(key, jnp.ones((ROWS, IN)))
    return LinenState(variables["params"], variables["batch_stats"], TX.init(variables["params"]))


def linen_forward(state, batch):
    logits, _ = Foreign().apply(
        {"params": state.params, "batch_stats": state.batch_stats}, batch["x"], mutable=["batch_stats"]
    )
    return {"values": {"logits": logits}}


def linen_step(state, batch):
    def loss(params):
        logits, changed = Foreign().apply(
            {"params": params, "batch_stats": state.batch_stats}, batch["x"], mutable=["batch_stats"]
        )
        return jnp.mean((logits - batch["y"]) ** 2), changed["batch_stats"]

    (value, stats), grads = jax.value_and_grad(loss, has_aux=True)(state.params)
    updates, opt_state = TX.update(grads, state.opt_state, state.params)
    new = LinenState(optax.apply_updates(state.params, updates), stats, opt_state)
    return {"values": {"loss": value}, "gradients": {"params": grads}, "state": new}


def nnx_forward(state, batch):
    return {"values": {"logits": state.model(batch["x"])}}


def nnx_step(state, batch):
    def loss(model):
        return jnp.mean((model(batch["x"]) - batch["y"]) ** 2)

    value, grads = nnx.value_and_grad(loss)(state.model)
    state.optimizer.update(state.model, grads)
    return {"values": {"loss": value}, "gradients": {"model": grads}, "state": state}


def batch(seed):
    rng = np.random.default_rng(seed)
    sizes = {"x": IN, "y": OUT}
    return {name: rng.standard_normal((ROWS, size), np.float32) for name, size in sizes.items()}


def replicated(leaves, mesh):
    return dict.fromkeys(leaves, PartitionSpec())


REST = {"inputs": batch, "specs": replicated, "input_specs": replicated}
STEP = {"steps": 2, "donate": True}


@functools.cache
def build(flavour):
    if flavour is Flavour.LINEN:
        programs = {"forward": (linen_forward, {}), "step": (linen_step, STEP)}
        return linen_build("linen foreign", create_linen, programs, **REST)
    programs = {"forward": (nnx_forward, {}), "step": (nnx_step, STEP)}
    return nnx_build("nnx foreign", TwinState, programs, **REST)


both = pytest.mark.parametrize("flavour", Flavour)


@pytest.mark.slow
@both
def test_leaves_abstract_and_created_state_agree(flavour):
    made = build(flavour)
    state = jax.jit(made.create)(jax.random.key(3))
    assert list(made.leaves) == list(made.abstract) and set(made.leaves) == set(state)
    for path, leaf in made.leaves.items():
        assert leaf.shape == made.abstract[path].shape == state[path].shape
        assert leaf.dtype == str(made.abstract[path].dtype) == str(state[path].dtype)


@both
def test_leaves_have_the_roles_of_a_training_state(flavour):
    counts = {role: 0 for role in Role}
    for leaf in build(flavour).leaves.values():
        counts[leaf.role] += 1
    steps = {Flavour.LINEN: 0, Flavour.NNX: 1}[flavour]
    assert counts == {Role.PARAMS: 5, Role.OPTIMIZER: 11 + steps, Role.RNG: 0, Role.STATE: 2}


@both
def test_create_follows_its_key(flavour):
    make = jax.jit(build(flavour).create)
    kernel = {Flavour.LINEN: "params/Dense_0/kernel", Flavour.NNX: "model/first/kernel"}[flavour]
    one, again, other = (make(jax.random.key(seed))[kernel] for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()


@both
def test_options_reach_the_program(flavour):
    forward, step = (build(flavour).programs[name] for name in ("forward", "step"))
    assert (forward.name, forward.steps, forward.donate) == ("forward", 1, False)
    assert (step.name, step.steps, step.donate) == ("step", 2, True)
    assert build(flavour).flavour is flavour and build(flavour).sources == ()


@both
@pytest.mark.parametrize("name", ["forward", "step"])
def test_a_program_runs_under_jit_and_leaves_its_state_alone(flavour, name):
    made = build(flavour)
    state = jax.jit(made.create)(jax.random.key(0))
    before, buffers = to_host(state), dict(state)
    outputs = jax.jit(made.programs[name].function)(state, batch(0))
    assert set(outputs) == ({Group.VALUES} if name == "forward" else set(Group) - {Group.ROUTING})
    assert all(state[path] is buffers[path] for path in buffers)
    assert {path: x.tobytes() for path, x in to_host(state).items()} == {
        path: x.tobytes() for path, x in before.items()
    }


@both
def test_a_step_returns_the_whole_new_state_and_gradients_by_state_path(flavour):
    """The NNX program changes its module in place; the returned state is the module after the call."""
    made = build(flavour)
    state = jax.jit(made.create)(jax.random.key(0))
    outputs = jax.jit(made.programs["step"].function)(state, batch(0))
    assert set(outputs["state"]) == set(state)
    roles = {role: {path for path in made.leaves if made.leaves[path].role is role} for role in Role}
    assert set(outputs["gradients"]) == roles[Role.PARAMS]
    for path, array in outputs["state"].items():
        assert (array.shape, array.dtype) == (state[path].shape, state[path].dtype)
        assert (np.asarray(array) != np.asarray(state[path])).any(), path


@both
def test_a_program_is_a_function_of_its_arguments(flavour):
    """A module that kept state between calls would return different results the second time."""
    made = build(flavour)
    function, state = made.programs["step"].function, jax.jit(made.create)(jax.random.key(0))
    first, second = (flatten(jax.jit(function)(state, batch(0))) for _ in range(2))
    for path in first:
        np.testing.assert_array_equal(first[path], second[path])


@both
def test_a_missing_leaf_is_named(flavour):
    made = build(flavour)
    state = dict(jax.jit(made.create)(jax.random.key(0)))
    gone = next(iter(state))
    state.pop(gone)
    with pytest.raises(ValueError, match=f"missing leaves \\['{gone}'\\]"):
        made.programs["forward"].function(state, batch(0))
