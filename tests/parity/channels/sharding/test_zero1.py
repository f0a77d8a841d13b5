"""ZeRO-1: moments in a fraction of the memory, correct placement in and out, and the same numbers."""

import functools

import jax
import numpy as np
import pytest
from flax import nnx
from jax.sharding import NamedSharding

import models_linen.train
import models_nnx.train
from models_nnx.shared.config import AttentionConfig, MlpConfig, ModelConfig, MomentSharding, TrainConfig
from models_nnx.shared.data import packed_batch
from models_nnx.shared.sharding import resolve
from parity.builds.build import Flavour
from parity.builds.meshes import MeshSpec, Mode
from parity.builds.tree import Codec, Role, flatten
from parity.compare.backends.registry import find
from parity.compare.clock import Clock
from parity.compare.layout import bytes_by_role, placed
from parity.compare.side import Side
from parity.matrix.sharded import PAIR
from parity.run.request import Request
from parity.run.run import case_runner

MESH = "data2.fsdp2.tensor2"
CONFIG = ModelConfig(
    vocab=64,
    embed=24,
    layers=2,
    attention=AttentionConfig(heads=4, kv_heads=2, head_dim=8),
    mlp=MlpConfig(hidden=40),
)
PLAIN, ZERO1 = TrainConfig(), TrainConfig(moments=MomentSharding.ZERO1)
BATCH_AXES = ("activation_batch", "activation_length")
CASES = {case.id: case for case in PAIR.cases({})}


def side_of(flavour, variant, mesh):
    case = CASES[f"sharded-{variant}/train_step@{mesh}"]
    build = (case.reference if flavour is Flavour.LINEN else case.candidate)()
    return Side(build, build.programs["train_step"], case.mesh, find("cpu"), Clock())


# --- bytes ---


@pytest.mark.parametrize("flavour", Flavour)
@pytest.mark.parametrize("mesh", ["data8.tensor1", "data2.fsdp2.context2.expert1"])
def test_the_bytes_of_every_moment_fall_by_the_size_of_the_data_axis(flavour, mesh):
    plain, zero1 = (side_of(flavour, variant, f"{mesh}-auto") for variant in ("scan", "scan-zero1"))
    data = dict(plain.mesh.axes)["data"]
    moments = 0
    for path, leaf in plain.build.leaves.items():
        before, after = placed(plain, path), placed(zero1, path)
        if leaf.role is Role.OPTIMIZER and leaf.shape:
            moments += 1
            assert before.bytes_per_device == data * after.bytes_per_device, path
            assert not any("data" in axes for axes in before.axes)
            assert sum(axes.count("data") for axes in after.axes) == 1
        else:
            assert before == after, path
    assert moments == 2 * sum(leaf.role is Role.PARAMS for leaf in plain.build.leaves.values())
    held = [bytes_by_role(side)[Role.OPTIMIZER] for side in (plain, zero1)]
    counters = sum(
        placed(plain, path).bytes_per_device
        for path, leaf in plain.build.leaves.items()
        if leaf.role is Role.OPTIMIZER and not leaf.shape
    )
    assert held[0] - counters == data * (held[1] - counters) and counters < 32


# --- three steps with unconstrained outputs ---


def batch_on(mesh, seed):
    return {
        name: jax.device_put(array, NamedSharding(mesh, resolve(BATCH_AXES, array.shape, CONFIG.rules, mesh)))
        for name, array in packed_batch(8, 40, seed).items()
    }


def linen_step(train, mesh):
    """Returns a fresh flat state with its specs, and the step as a function of flat state and batch."""
    module = models_linen.train
    create = functools.partial(module.create, CONFIG, train, batch=batch_on(mesh, 0))
    boxed = jax.eval_shape(create, jax.random.key(0))
    codec = Codec(boxed)

    def step(flat, batch):
        state, metrics = module.train_step(CONFIG, train, codec.restore(flat), batch)
        return flatten(state), metrics

    fresh = flatten(jax.jit(lambda key: module.unbox(create(key)))(jax.random.key(3)))
    return fresh, flatten(module.state_specs(CONFIG, train, boxed, mesh)), step


def nnx_step(train, mesh):
    """Returns the same for NNX as flat ``{path: array}``, without a graph."""
    module = models_nnx.train
    graphdef, abstract = nnx.split(nnx.eval_shape(lambda: module.create(CONFIG, train, jax.random.key(0))))
    codec = Codec(abstract)

    def step(flat, batch):
        state = nnx.merge(graphdef, codec.restore(flat))
        metrics = module.train_step(train, state, batch)
        return flatten(nnx.state(state)), metrics

    fresh = flatten(jax.jit(lambda key: nnx.state(module.create(CONFIG, train, key)))(jax.random.key(3)))
    return fresh, flatten(module.state_specs(CONFIG, train, abstract, mesh)), step


STEPS = {Flavour.LINEN: linen_step, Flavour.NNX: nnx_step}


def put(state, specs, mesh):
    return {path: jax.device_put(leaf, NamedSharding(mesh, specs[path])) for path, leaf in state.items()}


@functools.cache
def three_steps(flavour, mode):
    """Runs three ZeRO-1 steps, each on the last one's results, with unconstrained output shardings."""
    mesh = MeshSpec.parse(f"{MESH}-{mode}").on(jax.devices())
    jax.config.update("jax_disable_most_optimizations", True)
    try:
        fresh, specs, step = STEPS[flavour](ZERO1, mesh)
        history = [put(fresh, specs, mesh)]
        with jax.set_mesh(mesh):
            compiled = jax.jit(step).lower(history[0], batch_on(mesh, 0)).compile()
            for seed in range(3):
                state, metrics = compiled(history[-1], batch_on(mesh, seed))
                assert np.isfinite(metrics["loss"])
                history.append(state)
    finally:
        jax.config.update("jax_disable_most_optimizations", False)
    return mesh, specs, compiled, history


@pytest.mark.long
@pytest.mark.parametrize("flavour", Flavour)
@pytest.mark.parametrize("mode", Mode)
def test_state_keeps_its_placement_for_three_steps(flavour, mode):
    mesh, specs, compiled, history = three_steps(flavour, mode)
    taken, returned = compiled.input_shardings[0][0], compiled.output_shardings[0]
    unread = [path for path, sharding in taken.items() if sharding is None]
    assert {path.split("/")[-1] for path in unread} <= {"last_finite"}
    split = 0
    for path, spec in specs.items():
        shardings = [
            taken[path] or returned[path],
            returned[path],
            *(state[path].sharding for state in history),
        ]
        wanted = NamedSharding(mesh, spec)
        elsewhere = [got for got in shardings if not got.is_equivalent_to(wanted, history[0][path].ndim)]
        assert not elsewhere, (path, spec, elsewhere)
        split += any("data" in (part or ()) for part in spec)
    assert split == 2 * 12


@pytest.mark.long
@pytest.mark.parametrize("flavour", Flavour)
def test_devices_hold_the_moments_once_over_data(flavour):
    """Counts the bytes that are really on a device, not those that specs promise."""
    mesh, _, _, history = three_steps(flavour, Mode.EXPLICIT)
    plain = put(history[0], STEPS[flavour](PLAIN, mesh)[1], mesh)

    def held(state):
        moments = [leaf for path, leaf in state.items() if "/mu/" in path or "/nu/" in path]
        shards = [shard for leaf in moments for shard in leaf.addressable_shards]
        (size,) = {
            sum(shard.data.nbytes for shard in shards if shard.device == device) for device in jax.devices()
        }
        return size

    assert {held(plain) / held(state) for state in history} == {2}


@pytest.mark.long
def test_plain_moments_against_zero1_is_within_the_floor():
    id = f"sharded-plain-against-zero1-nnx/train_step@{MESH}-explicit"
    result = case_runner(Request(channels=("values", "state"), paranoid=True))(CASES[id])
    assert result.verdict == "passed", result.sentence()
    assert {str(channel.verdict) for channel in result.channels.values()} <= {"bitwise", "floor"}
