"""DiLoCo's twins against independent replicas, step by step; resumed; and the traffic between replicas."""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import oracle_diloco
import oracle_drjax
import pytest
from crossings import crossings

from models_nnx.shared.config import DilocoConfig, OptimizerConfig, TrainConfig
from models_nnx.shared.presets import preset, tiny
from parity.builds.build import Flavour
from parity.builds.meshes import MeshSpec
from parity.builds.tree import to_host
from parity.compare.backends.registry import find
from parity.compare.clock import Clock
from parity.compare.side import Side
from parity.matrix.decoders import Variant

pytestmark = pytest.mark.slow

SHAPE, REPLICAS, SEED = (4, 24), 2, 7
FIRST = {"dense_layers": 0, "layers": 1}
CONFIG = dataclasses.replace(
    tiny(preset("deepseek3-671b")),
    layers=3,
    dense_layers=1,
    dropout=0.1,
    param_dtype="float64",
    compute_dtype="float64",
)
TRAIN = TrainConfig(optimizer=OptimizerConfig(epsilon=1e-4))
PLAIN = DilocoConfig(replicas=REPLICAS, period=2, momentum=0.8)
STREAMING = DilocoConfig(replicas=REPLICAS, period=4, fragments=2, delay=1, inner_share=0.25, momentum=0.8)
PARAMS = {Flavour.LINEN: "params/", Flavour.NNX: "model/"}


@pytest.fixture(scope="module", autouse=True)
def doubles():
    """64-bit JAX, and quick compilation."""
    jax.config.update("jax_disable_most_optimizations", True)
    with jax.enable_x64(True):
        yield
    jax.config.update("jax_disable_most_optimizations", False)


def variant(diloco):
    return Variant(f"oracle {diloco}", CONFIG, TRAIN, SHAPE, diloco)


@functools.cache
def stepper(flavour, diloco):
    """``(flat state, batch) -> {group: flat}``, compiled."""
    return jax.jit(variant(diloco).build(flavour).programs["diloco_step"].function)


@functools.cache
def alone(flavour):
    """Returns the compiled train step of one replica, which has no data of others."""
    return jax.jit(
        Variant("oracle alone", CONFIG, TRAIN, SHAPE).build(flavour).programs["train_step"].function
    )


def start(flavour, diloco):
    return dict(jax.jit(variant(diloco).build(flavour).create)(jax.random.key(SEED)))


def batches(flavour, diloco, step):
    return variant(diloco).build(flavour).inputs(SEED + step)


def one(leaves, replica):
    """Returns the state or batch of one replica."""
    return {
        path.removeprefix("inner/"): x[replica] for path, x in leaves.items() if not path.startswith("outer/")
    }


def trained(flavour, leaves):
    """``{path: float64 array}`` of the trained parameters, copies."""
    prefix = PARAMS[flavour]
    return {p.removeprefix(prefix): np.array(x) for p, x in leaves.items() if p.startswith(prefix)}


def held(leaves):
    return to_host(leaves)


def close(path, got, expected):
    if got.dtype.kind != "f":
        np.testing.assert_array_equal(got, expected, err_msg=path)
        return
    scale = max(np.abs(expected).max(), 1e-30)
    np.testing.assert_allclose(got, expected, rtol=1e-7, atol=1e-7 * scale, err_msg=path)


# One twin runs plain, the other streaming; they are proved to be the same program in both.
TWINS = pytest.mark.parametrize(
    "flavour, diloco",
    [(Flavour.LINEN, PLAIN), (Flavour.NNX, STREAMING)],
    ids=["linen-plain", "nnx-streaming"],
)


@pytest.mark.long
@TWINS
def test_replicas_are_those_of_a_python_loop(flavour, diloco):
    """Two stacks of different depth, experts with routing biases, dropout; each replica has a separate train step."""
    state = start(flavour, diloco)
    states = [one(state, replica) for replica in range(REPLICAS)]
    common = {
        p.removeprefix("outer/params/"): np.array(x)
        for p, x in state.items()
        if p.startswith("outer/params/")
    }
    oracle = oracle_diloco.Replicas([{}] * REPLICAS, oracle_diloco.layers(common, FIRST), diloco)
    for step in range(2 * diloco.period + 1):
        batch = batches(flavour, diloco, step)
        state = stepper(flavour, diloco)(state, batch)["state"]
        for replica in range(REPLICAS):
            inputs = {**one(batch, replica), "loss_scale": np.float32(1)}
            states[replica] = dict(alone(flavour)(states[replica], inputs)["state"])
        whole = [trained(flavour, leaves) for leaves in states]
        oracle.inner = [oracle_diloco.layers(arrays, FIRST) for arrays in whole]
        oracle.after_step()
        for leaves, arrays in zip(states, whole, strict=True):
            leaves.update({PARAMS[flavour] + path: jnp.asarray(array) for path, array in arrays.items()})
        found = held(state)
        assert found["outer/step"] == step + 1
        for replica, leaves in enumerate(states):
            for path, expected in held(leaves).items():
                close(
                    f"step {step + 1}, replica {replica}: {path}", found[f"inner/{path}"][replica], expected
                )
    biases = [x for path, x in found.items() if path.startswith("inner/") and path.endswith("routing_bias")]
    assert biases and all((bias[0] != bias[1]).any() for bias in biases)
    assert len({tuple(key) for key in found["inner/key"].tolist()}) == REPLICAS
    if not oracle.waiting:
        shared = {
            p.removeprefix("outer/params/"): x for p, x in found.items() if p.startswith("outer/params/")
        }
        for name, array in oracle_diloco.layers(shared, FIRST).items():
            close(str(name), array, oracle.outer[name])


def fragments_of(params, diloco):
    """``{path: number of each entry's fragment}``, by the layers that the plain loop finds."""
    numbers = {path: np.zeros(x.shape, int) for path, x in params.items()}
    if diloco.fragments > 1:
        for (name, number), view in oracle_diloco.layers(numbers, FIRST).items():
            view[...] = oracle_diloco.fragment_of(name, number, diloco.fragments)
        assert any(0 < (x > 0).mean() < 1 for x in numbers.values()), (
            "no stack has layers of several fragments"
        )
    return numbers


@pytest.mark.long
@TWINS
def test_replicas_are_those_of_drjax(flavour, diloco):
    state, prefix, outer = start(flavour, diloco), PARAMS[flavour], "outer/params/"
    params = {path.removeprefix(outer): x for path, x in state.items() if path.startswith(outer)}
    placed = oracle_drjax.Placed(
        alone(flavour),
        {path.removeprefix("inner/"): x for path, x in state.items() if path.startswith("inner/")},
        {prefix + path: x for path, x in params.items()},
        {prefix + path: x for path, x in fragments_of(params, diloco).items()},
        diloco,
    )
    for number in range(1, 2 * diloco.period + 2):
        batch = batches(flavour, diloco, number - 1)
        state = stepper(flavour, diloco)(state, batch)["state"]
        placed.step(number, {**batch, "loss_scale": np.ones(REPLICAS, np.float32)})
        found = held(state)
        for path, expected in held(placed.states).items():
            close(f"step {number}: {path}", found[f"inner/{path}"], expected)
    assert placed.taken == (2 if diloco is PLAIN else 4)


@pytest.mark.long
@TWINS
def test_a_state_written_and_read_goes_on_bit_for_bit(flavour, diloco, tmp_path):
    """Between synchronisations, at one, and between a fragment's synchronisation and its use."""
    step = stepper(flavour, diloco)
    state, ends = start(flavour, diloco), []
    for number in range(2 * diloco.period + 1):
        state = step(state, batches(flavour, diloco, number))["state"]
        np.savez(tmp_path / f"{number}.npz", **{re.sub("/", "|", path): x for path, x in held(state).items()})
        ends.append(held(state))
    abstract = variant(diloco).build(flavour).abstract
    for begin in (0, 1, 2):  # after steps 1, 2 (a fragment is synchronised, not yet usable) and 3
        with np.load(tmp_path / f"{begin}.npz") as file:
            flat = {re.sub(r"\|", "/", path): file[path] for path in file.files}
        assert set(flat) == set(abstract)
        state = {path: as_stored(x, abstract[path].dtype) for path, x in flat.items()}
        for number in range(begin + 1, len(ends)):
            state = step(state, batches(flavour, diloco, number))["state"]
        for path, x in held(state).items():
            assert x.tobytes() == ends[-1][path].tobytes(), path


def as_stored(array, dtype):
    is_key = jnp.issubdtype(dtype, jax.dtypes.prng_key)
    return jax.random.wrap_key_data(jnp.asarray(array)) if is_key else jnp.asarray(array)


SMALL = dataclasses.replace(tiny(preset("llama2-70b")), dropout=0.1)
MESH = "replica2.fsdp2.tensor2"


def crossing(program, diloco, mode):
    mesh = MeshSpec.parse(f"{MESH}-{mode}")
    with jax.enable_x64(False):
        build = Variant(f"crossing {diloco}", SMALL, TRAIN, (8, 40), diloco).build(Flavour.NNX)
        side = Side(build, build.programs[program], mesh, find("cpu"), Clock())
        return crossings(side.optimised, mesh.axes, "replica")


@pytest.mark.long
@pytest.mark.parametrize("mode", ["auto", "explicit"])
def test_nothing_crosses_replicas_but_the_sync(mode):
    assert crossing("inner_step", STREAMING, mode) == ()
    assert crossing("apply_step", STREAMING, mode) == ()
    found = crossing("sync_step", STREAMING, mode)
    assert found and not any(one.conditional for one in found)
    both = crossing("diloco_step", STREAMING, mode)
    assert both and all(one.conditional for one in both)
    assert {one.kind for one in both} == {"all-reduce"}
