"""State as ``{path: leaf}``: conversion from the trees of both frameworks, and back."""

import dataclasses

import flax
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx
from flax.training.train_state import TrainState

from parity.builds.tree import Codec, Leaf, Role, describe, flatten, is_counter, to_host

AXES = ("embed", "mlp")


class Boxed(linen.Module):
    """A Linen module with one boxed and one plain parameter, and batch statistics."""

    def setup(self):
        init = linen.with_logical_partitioning(linen.initializers.normal(), AXES)
        self.dense = linen.Dense(4, kernel_init=init)
        self.norm = linen.BatchNorm(use_running_average=False)

    def __call__(self, x):
        return self.norm(self.dense(x))


class Routing(nnx.Variable):
    """A separate Variable type, such as a routing bias that no optimizer may update."""


class Twin(nnx.Module):
    """An NNX module with every kind of state that the engine knows."""

    def __init__(self, rngs):
        metadata = {"out_sharding": AXES, "eager_sharding": False}
        self.layers = nnx.List(
            [nnx.Linear(3, 3, rngs=rngs, kernel_metadata=metadata, use_bias=i > 0) for i in range(2)]
        )
        self.norm = nnx.BatchNorm(3, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.bias = Routing(jnp.arange(5.0))


class Training(nnx.Module):
    """State of an NNX training loop."""

    def __init__(self, key):
        self.model = Twin(nnx.Rngs(key))
        self.optimizer = nnx.Optimizer(self.model, optax.adam(1e-3), wrt=nnx.Param)


def linen_state(key=None):
    variables = Boxed().init(jax.random.key(0) if key is None else key, jnp.ones((2, 3)))
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3))
    return TrainState.create(apply_fn=None, params=variables["params"], tx=tx)


def nnx_state():
    return nnx.state(Training(jax.random.key(0)))


def roles(leaves):
    return {path: leaf.role for path, leaf in leaves.items()}


def test_a_linen_train_state_with_boxed_parameters_and_moments():
    leaves = describe(jax.eval_shape(linen_state))
    names = ("dense/bias", "dense/kernel", "norm/bias", "norm/scale")
    params = {f"params/{name}" for name in names}
    moments = {f"opt_state/1/0/{moment}/{name}" for moment in ("mu", "nu") for name in names}
    assert set(leaves) == params | moments | {"step", "opt_state/1/0/count"}
    assert {path for path, role in roles(leaves).items() if role is Role.PARAMS} == params
    assert {role for path, role in roles(leaves).items() if path not in params} == {Role.OPTIMIZER}
    for path in ("params/dense/kernel", "opt_state/1/0/mu/dense/kernel", "opt_state/1/0/nu/dense/kernel"):
        leaf = leaves[path]
        assert (leaf.path, leaf.shape, leaf.dtype, leaf.logical_axes) == (path, (3, 4), "float32", AXES)
    assert leaves["params/dense/bias"].logical_axes is None


@pytest.mark.long
def test_other_linen_collections_are_state():
    variables = Boxed().init(jax.random.key(0), jnp.ones((2, 3)))
    for tree in (variables, flax.core.freeze(variables)):
        leaf = describe(tree)["batch_stats/norm/mean"]
        assert (leaf.role, leaf.shape) == (Role.STATE, (4,))
        assert describe(tree)["params/dense/kernel"].role is Role.PARAMS


@pytest.mark.parametrize(
    ("paths", "params"),
    [
        (["a/params/w", "a/opt_state/mu/w", "b/params/w", "b/opt_state/mu/w"], {"a/params/w", "b/params/w"}),
        (["a/params/w", "a/opt_state/mu/w", "mean/params/w"], {"a/params/w"}),
        (["params/w", "opt_state/mu/w", "mean/params/w", "a/params/w"], {"params/w"}),
        (["a/params/w", "a/batch_stats/w", "b/params/w"], {"a/params/w", "b/params/w"}),
    ],
    ids=["two trained parts", "an average of a trained part", "one state", "variables of two models"],
)
def test_the_parameters_of_a_state_in_parts(paths, params):
    tree = {}
    for path in paths:
        inside = tree
        for part in path.split("/")[:-1]:
            inside = inside.setdefault(part, {})
        inside[path.rpartition("/")[2]] = jnp.ones(2)
    found = describe(tree)
    assert {path for path, leaf in found.items() if leaf.role is Role.PARAMS} == params
    optimizers = {path for path, leaf in found.items() if leaf.role is Role.OPTIMIZER}
    assert optimizers == {path for path in paths if "opt_state" in path}


EXPECTED = {
    "model/bias": Role.STATE,
    "model/dropout/rngs/count": Role.RNG,
    "model/dropout/rngs/key": Role.RNG,
    "model/layers/0/kernel": Role.PARAMS,
    "model/layers/1/bias": Role.PARAMS,
    "model/layers/1/kernel": Role.PARAMS,
    "model/norm/bias": Role.PARAMS,
    "model/norm/scale": Role.PARAMS,
    "model/norm/mean": Role.STATE,
    "model/norm/var": Role.STATE,
    "optimizer/step": Role.OPTIMIZER,
}


@pytest.mark.slow
def test_nnx_state_gives_roles_by_variable_type():
    leaves = describe(nnx_state())
    found = roles(leaves)
    moments = {path for path in found if path.startswith("optimizer/opt_state/")}
    assert {path: found[path] for path in found if path not in moments} == EXPECTED
    assert {found[path] for path in moments} == {Role.OPTIMIZER}
    params = {path.removeprefix("model/") for path in found if found[path] is Role.PARAMS}
    wanted = {f"optimizer/opt_state/0/{moment}/{name}" for moment in ("mu", "nu") for name in params}
    assert moments == wanted | {"optimizer/opt_state/0/count"}


def test_moments_are_the_optimizers_in_any_field():
    params = {"layer": nnx.Param(jnp.ones(3))}
    optimizer = optax.chain(optax.clip(1.0), optax.multi_transform({"all": optax.adam(1e-3)}, "all"))
    found = roles(
        describe({"held": params, "memory": optimizer.init(params), "ema": optax.ema(0.9).init(params)})
    )
    moments = {path: role for path, role in found.items() if path.startswith("memory/")}
    assert len(moments) == 3 and set(moments.values()) == {Role.OPTIMIZER}
    assert found["held/layer"] is Role.PARAMS and found["ema/count"] is Role.STATE
    weights = {"layer": jnp.ones(3)}
    assert set(roles(describe({"params": optax.LookaheadParams(weights, weights)})).values()) == {Role.PARAMS}


def test_nnx_logical_axes_reach_the_moments():
    leaves = describe(nnx_state())
    for path in ("model/layers/0/kernel", "optimizer/opt_state/0/mu/layers/0/kernel"):
        assert leaves[path].logical_axes == AXES
    assert leaves["model/norm/scale"].logical_axes is None


def test_a_bias_declared_as_a_parameter_differs_from_one_that_is_not():
    """Guards against history B4."""
    right, wrong = nnx.Dict(bias=Routing(jnp.ones(3))), nnx.Dict(bias=nnx.Param(jnp.ones(3)))
    kinds = [describe(nnx.state(module))["bias"] for module in (right, wrong)]
    assert [leaf.role for leaf in kinds] == [Role.STATE, Role.PARAMS]


def test_typed_keys_are_rng_in_any_collection():
    tree = {"params": {"key": jax.random.key(0)}, "other": jax.random.split(jax.random.key(1), 4)}
    leaves = describe(tree)
    assert set(roles(leaves).values()) == {Role.RNG}
    assert leaves["other"].shape == (4,) and leaves["other"].dtype.startswith("key<")


def test_abstract_and_concrete_trees_have_equal_descriptions():
    assert describe(jax.eval_shape(nnx_state)) == describe(nnx_state())
    abstract = describe(jax.eval_shape(linen_state))
    assert describe(jax.jit(linen_state)()) == abstract


def test_size_counts_elements():
    leaf = next(iter(describe({"x": np.zeros((2, 3))}).values()))
    assert leaf.size == 6
    assert dataclasses.replace(leaf, shape=()).size == 1


def test_variables_that_hold_trees_give_every_array():
    """Sown values are tuples inside one Variable; unless popped, they grow by a leaf a step (history A3)."""
    module = nnx.Dict(loss=nnx.Intermediate((jnp.ones(2), jnp.zeros(()))), cache=Routing({"k": jnp.ones(3)}))
    state = nnx.state(module)
    leaves = describe(state)
    assert {path: leaf.shape for path, leaf in leaves.items()} == {
        "cache/k": (3,),
        "loss/0": (2,),
        "loss/1": (),
    }
    assert set(flatten(state)) == set(leaves)
    restored = Codec(state).restore({path: array + 1 for path, array in flatten(state).items()})
    np.testing.assert_array_equal(restored["cache"].get_value()["k"], 2 * np.ones(3))
    assert isinstance(restored["loss"], nnx.Intermediate) and len(restored["loss"].get_value()) == 2


def test_two_leaves_of_one_path_are_refused_not_merged():
    with pytest.raises(ValueError, match="a/b"):
        flatten({"a/b": np.ones(1), "a": {"b": np.zeros(1)}})


def test_flatten_gives_the_arrays_under_the_described_paths():
    for state in (linen_state(), nnx_state()):
        flat, leaves = flatten(state), describe(jax.eval_shape(lambda state=state: state))
        assert list(flat) == list(leaves)
        for path, array in flat.items():
            assert jnp.shape(array) == leaves[path].shape


@pytest.mark.parametrize("make", [linen_state, nnx_state])
def test_restore_puts_every_array_in_its_placement(make):
    state = jax.jit(make)()
    flat = {path: array for path, array in flatten(state).items()}
    changed = {
        path: array if jnp.issubdtype(array.dtype, jax.dtypes.prng_key) else array + 1
        for path, array in flat.items()
    }
    codec = Codec(jax.eval_shape(make))
    again = flatten(codec.restore(dict(sorted(changed.items(), reverse=True))))
    assert list(again) == list(flat) == codec.paths
    assert all(again[path] is changed[path] for path in again)


def test_restore_keeps_variable_types_and_metadata_and_drops_boxes():
    state = nnx_state()
    restored = Codec(state).restore(flatten(state))
    assert isinstance(restored["model"]["bias"], Routing)
    assert describe(restored) == describe(state)
    boxed = linen_state()
    assert isinstance(Codec(boxed).restore(flatten(boxed)).params["dense"]["kernel"], jax.Array)


def test_restore_lists_everything_missing_and_left_over():
    codec = Codec({"a": np.zeros(1), "b": {"c": np.zeros(1), "d": np.zeros(1)}})
    with pytest.raises(ValueError) as caught:
        codec.restore({"a": np.ones(1), "b/x": np.ones(1), "y": np.ones(1)})
    for part in ("missing leaves ['b/c', 'b/d']", "unexpected leaves ['b/x', 'y']", "expected 3"):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("paths", "message"), [((), r"missing leaves \['a'\]"), (("a", "b"), r"leaves \['b'\]")]
)
def test_either_kind_of_leftover_is_an_error(paths, message):
    with pytest.raises(ValueError, match=message):
        Codec({"a": np.zeros(1)}).restore({path: np.ones(1) for path in paths})


def test_host_copies_do_not_follow_the_source():
    """History P4: a snapshot that aliases the mutable model follows every later change of it."""
    source = np.arange(6.0)
    host = to_host({"whole": source, "view": source[::2]})
    source[:] = -1
    np.testing.assert_array_equal(host["whole"], np.arange(6.0))
    np.testing.assert_array_equal(host["view"], [0.0, 2.0, 4.0])


@pytest.mark.slow
def test_host_copies_survive_a_mutated_module_and_a_donated_buffer():
    module = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
    flat = flatten(nnx.state(module))
    expected = np.array(flat["kernel"])
    host = to_host(flat)
    module.kernel.set_value(module.kernel.get_value() * 2)
    jax.jit(lambda x: x * 3, donate_argnums=0)(flat["kernel"])
    np.testing.assert_array_equal(host["kernel"], expected)
    assert host["kernel"].flags.writeable and host["kernel"].base is None


def test_keys_become_their_data():
    keys = jax.random.split(jax.random.key(7), 3)
    host = to_host({"keys": keys})["keys"]
    assert host.dtype == np.uint32 and host.shape == (3, 2)
    np.testing.assert_array_equal(host, np.asarray(jax.random.key_data(keys)))


def test_a_box_with_a_mesh_is_opened_as_it_is():
    """Opening it in the usual way would constrain shapes that exist on no device."""
    mesh = jax.sharding.Mesh(jax.devices()[:2], ("data",))
    box = linen.LogicallyPartitioned(jax.ShapeDtypeStruct((4,), jnp.float32), ("embed",), mesh=mesh)
    with linen.logical_axis_rules((("embed", "data"),)):
        assert flatten({"w": box}) == {"w": box.value}
        assert Codec({"w": box}).paths == ["w"]


def test_the_moments_of_a_pure_state_are_optimizer_leaves_though_optax_keeps_their_type():
    params = nnx.state(nnx.Linear(2, 3, rngs=nnx.Rngs(0)), nnx.Param)
    leaves = describe(
        {"params": params, "opt_state": optax.adam(1e-3).init(params), "step": nnx.Param(jnp.ones(()))}
    )
    found = roles(leaves)
    assert found["params/kernel"] is found["step"] is Role.PARAMS
    assert found["opt_state/0/mu/kernel"] is found["opt_state/0/nu/bias"] is Role.OPTIMIZER


@pytest.mark.parametrize(
    ("shape", "dtype", "role", "counts"),
    [
        ((), "int32", Role.OPTIMIZER, True),
        ((), "uint32", Role.STATE, True),
        ((3,), "int32", Role.STATE, False),
        ((), "int32", Role.PARAMS, False),
        ((), "float32", Role.STATE, False),
    ],
)
def test_only_a_single_integer_of_the_state_is_a_counter(shape, dtype, role, counts):
    """The integer type of any other leaf is compared."""
    assert is_counter(Leaf(path="n", shape=shape, dtype=dtype, role=role)) == counts
