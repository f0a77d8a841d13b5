"""One program on one mesh: traced, lowered and compiled once, run step by step, and its crashes."""

import dataclasses
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from parity.builds.build import Build, Flavour, Program
from parity.builds.meshes import MeshSpec
from parity.builds.tree import describe, to_host
from parity.cases.case import Case, Placement
from parity.compare.backends.registry import find
from parity.compare.clock import PHASES, Clock, SideError
from parity.compare.layout import placed
from parity.compare.session import Session
from parity.compare.side import Side

MESH = "fsdp4.tensor2"


def state_tree(key):
    return {
        "params": {"w": jax.random.normal(key, (8, 6))},
        "opt_state": {"sum": jnp.zeros((8, 6)), "count": jnp.zeros((), jnp.int32)},
        "key": jax.random.key(5),
    }


def create(key):
    tree = state_tree(key)
    return {"params/w": tree["params"]["w"], "key": tree["key"]} | {
        f"opt_state/{name}": array for name, array in tree["opt_state"].items()
    }


class Counted:
    """A step that counts how often Python runs it."""

    def __init__(self):
        self.calls = 0

    def __call__(self, state, inputs):
        self.calls += 1
        w = state["params/w"]
        loss = jnp.sum(inputs["x"] @ w)
        new = {
            "params/w": w - 0.5 * inputs["scale"],
            "opt_state/sum": state["opt_state/sum"] + w,
            "opt_state/count": state["opt_state/count"] + 1,
            "key": jax.random.split(state["key"])[0],
        }
        return {"values": {"loss": loss}, "gradients": {"params/w": w * 0 + inputs["scale"]}, "state": new}


def batch(seed):
    rng = np.random.default_rng(seed)
    return {"x": rng.standard_normal((4, 8), np.float32), "scale": np.float32(seed + 1)}


def specs(mesh):
    leaves = jax.eval_shape(create, jax.random.key(0))
    return {path: P("fsdp", "tensor") if len(leaf.shape) == 2 else P() for path, leaf in leaves.items()}


def input_specs(leaves, mesh):
    return {path: P("fsdp") if np.ndim(leaf) else P() for path, leaf in leaves.items()}


def side(function=None, mesh="single", clock=None, **options):
    program = Program(name="step", function=function or Counted(), **options)
    build = Build(
        name="linen toy",
        flavour=Flavour.LINEN,
        create=create,
        leaves=describe(jax.eval_shape(state_tree, jax.random.key(0))),
        abstract=jax.eval_shape(create, jax.random.key(0)),
        programs={"step": program},
        inputs=batch,
        abstract_inputs={name: jax.ShapeDtypeStruct(x.shape, x.dtype) for name, x in batch(0).items()},
        specs=specs,
        input_specs=input_specs,
    )
    return Side(build, program, MeshSpec.parse(mesh), find("cpu"), clock or Clock())


def host_state():
    return to_host(create(jax.random.key(1)))


def expected(steps, seed=0):
    """The steps in NumPy: weights, running sum and loss after each."""
    w, total, rows = host_state()["params/w"].astype(np.float64), 0.0, []
    for step in range(steps):
        inputs = batch(seed + step)
        loss = np.sum(inputs["x"].astype(np.float64) @ w)
        total, w = total + w, w - 0.5 * inputs["scale"]
        rows.append((w, total, loss))
    return rows


@pytest.mark.slow
def test_phases_happen_once_and_only_on_request():
    function = Counted()
    one = side(function, steps=2, donate=True)
    assert function.calls == 0
    stages = [one.traced, one.lowered, one.compiled]
    traces = function.calls
    assert traces >= 1
    for seed in (0, 7):
        one.run(host_state(), seed)
    assert [one.traced, one.lowered, one.compiled] == stages
    assert all(
        again is stage for again, stage in zip((one.traced, one.lowered, one.compiled), stages, strict=True)
    )
    assert function.calls == traces


def test_python_runs_the_program_once():
    """Output shardings need the outputs' names first; that must not require a second trace."""
    function = Counted()
    assert side(function, mesh=MESH).compiled is not None
    assert function.calls == 1


def test_the_clock_books_each_phase_and_starts_again():
    clock = Clock()
    one = side(clock=clock)
    assert one.traced is not None
    seconds = clock.take()
    assert tuple(seconds) == PHASES
    assert {name for name, spent in seconds.items() if spent} == {"trace"}
    one.run(host_state(), 0)
    assert {name for name, spent in clock.take().items() if spent} == {"lower", "compile", "execute"}
    assert not any(clock.take().values())


def test_a_program_may_return_values_only():
    results = side(lambda state, inputs: {"values": {"x": inputs["x"] * 2}}).run(host_state(), 3)
    assert set(results) == {"values"}
    np.testing.assert_array_equal(results["values"]["x"], 2 * batch(3)["x"])


@pytest.mark.parametrize(("mesh", "donate"), [("single", False), (MESH, True), (f"{MESH}-explicit", False)])
def test_one_step_returns_host_arrays_without_a_prefix(mesh, donate):
    results = side(mesh=mesh, donate=donate).run(host_state(), 3)
    assert {group: set(leaves) for group, leaves in results.items()} == {
        "values": {"loss"},
        "gradients": {"params/w"},
        "state": set(host_state()),
    }
    w, total, loss = expected(1, seed=3)[0]
    np.testing.assert_allclose(results["values"]["loss"], loss, rtol=1e-4)
    np.testing.assert_allclose(results["state"]["params/w"], w, rtol=1e-5)
    np.testing.assert_allclose(results["state"]["opt_state/sum"], total, rtol=1e-6)
    assert all(isinstance(x, np.ndarray) for leaves in results.values() for x in leaves.values())


@pytest.mark.parametrize("mesh", ["single", MESH])
def test_several_steps_feed_the_state_back_and_prefix_their_results(mesh):
    results = side(mesh=mesh, steps=3, donate=True).run(host_state(), 0)
    assert set(results["values"]) == {f"step{i}/loss" for i in (1, 2, 3)}
    assert set(results["gradients"]) == {f"step{i}/params/w" for i in (1, 2, 3)}
    assert set(results["state"]) == {f"step{i}/{path}" for i in (1, 3) for path in host_state()}
    for step, (w, total, loss) in enumerate(expected(3), start=1):
        np.testing.assert_allclose(results["values"][f"step{step}/loss"], loss, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(results["gradients"][f"step{step}/params/w"], np.float32(step))
        if step != 2:
            np.testing.assert_allclose(results["state"][f"step{step}/params/w"], w, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(
                results["state"][f"step{step}/opt_state/sum"], total, rtol=1e-5, atol=1e-5
            )
            assert results["state"][f"step{step}/opt_state/count"] == step


@pytest.mark.parametrize(("implementation", "size"), [("threefry2x32", 8), ("rbg", 16)])
def test_a_key_takes_the_bytes_of_its_generator(implementation, size):
    one = side(mesh=MESH)
    key = jax.eval_shape(lambda: jax.random.key(5, impl=implementation))
    build = dataclasses.replace(one.build, abstract={**one.build.abstract, "key": key})
    assert placed(dataclasses.replace(one, build=build), "key").bytes_per_device == size


@pytest.mark.parametrize("mesh", ["single", MESH])
def test_keys_go_in_and_come_out_as_their_data(mesh):
    results = side(mesh=mesh, steps=2).run(host_state(), 0)
    key = jax.random.key(5)
    for step in (1, 2):
        key = jax.random.split(key)[0]
        np.testing.assert_array_equal(results["state"][f"step{step}/key"], jax.random.key_data(key))


@pytest.mark.parametrize("mesh", ["single", MESH])
def test_donation_corrupts_neither_the_host_state_nor_earlier_results(mesh):
    """History P4: donated buffers are overwritten; host arrays must not be those buffers."""
    one, state = side(mesh=mesh, steps=3, donate=True), host_state()
    before = {path: array.tobytes() for path, array in state.items()}
    results = one.run(state, 0)
    kept = {path: array.tobytes() for path, array in results["state"].items()}
    again = one.run(state, 0)
    assert {path: array.tobytes() for path, array in state.items()} == before
    assert {path: array.tobytes() for path, array in results["state"].items()} == kept
    assert {path: array.tobytes() for path, array in again["state"].items()} == kept
    for path, array in state.items():
        assert not any(np.shares_memory(array, out) for out in results["state"].values()), path


@pytest.mark.parametrize("donate", [False, True])
def test_a_program_that_donates_really_does(donate):
    aliased = side(donate=donate).compiled.memory_analysis().alias_size_in_bytes
    assert (aliased >= 2 * 8 * 6 * 4) if donate else (aliased == 0)


def test_donation_spares_a_host_array_that_the_device_uses_in_place():
    """The CPU backend uses aligned host arrays without a copy, even if ``may_alias`` is false."""
    raw = np.zeros(8 * 6 * 4 + 64, np.uint8)
    start = -raw.ctypes.data % 64
    aligned = raw[start : start + 8 * 6 * 4].view(np.float32).reshape(8, 6)
    state = host_state()
    aligned[:] = state["params/w"]
    results = side(steps=3, donate=True).run(state | {"params/w": aligned}, 0)
    np.testing.assert_array_equal(aligned, state["params/w"])
    assert (results["state"]["step1/params/w"] != aligned).all()


def test_specs_are_those_of_the_build_and_the_state_keeps_its_placement():
    one = side(mesh=MESH)
    assert one.specs == specs(None)
    assert side().specs == {}
    assert one.compiled.output_shardings["state"]["params/w"].spec == P("fsdp", "tensor")
    assert one.compiled.input_shardings[0][1]["x"].spec == P("fsdp")


def broken(where):
    def function(state, inputs):
        if where == "trace":
            raise KeyError("no such layer")
        return {"values": {"x": jax.pure_callback(explode, jax.ShapeDtypeStruct((), jnp.float32))}}

    return function


def explode():
    raise RuntimeError("boom")


@pytest.mark.parametrize(("where", "kind"), [("trace", "KeyError"), ("execute", "")])
def test_a_crash_names_its_build_and_phase(where, kind):
    one = side(broken(where))
    with pytest.raises(SideError, match=f"linen toy: {where} failed: {kind}") as caught:
        one.run(host_state(), 0)
    assert (caught.value.build, caught.value.phase) == ("linen toy", where)
    assert caught.value.cause is caught.value.__cause__


@pytest.mark.parametrize(("phase", "method"), [("lower", "lower"), ("compile", "start")])
def test_the_phase_is_that_of_the_stage_that_failed(phase, method, monkeypatch):
    def fail(*stages):
        raise MemoryError("out of memory")

    one = side()
    monkeypatch.setattr(type(one.backend), method, fail)
    with pytest.raises(SideError, match=f"linen toy: {phase} failed: MemoryError: out of memory"):
        assert one.compiled


def test_a_failed_observation_is_not_made_again():
    calls = []

    def function(state, inputs):
        calls.append(1)
        raise KeyError("no such layer")

    one = side(function)
    errors = []
    for stage in ("traced", "lowered", "compiled", "operations", "traced"):
        with pytest.raises(SideError, match="linen toy: trace failed: KeyError") as caught:
            getattr(one, stage)
        errors.append(caught.value)
    assert len(calls) == 1 and all(error is errors[0] for error in errors)
    with pytest.raises(SideError):
        _ = dataclasses.replace(one).traced
    assert len(calls) == 2


def test_a_reading_is_made_once_for_a_side():
    made = []

    def names(of):
        made.append(of)
        return tuple(of.state_paths)

    one, other = side(), side()
    assert one.read(names) is one.read(names) and made == [one]
    assert other.read(names) == one.read(names) and made == [one, other]


def test_a_crash_in_the_inputs_belongs_to_a_phase():
    def missing(seed):
        raise OSError("no data")

    one = side()
    one = dataclasses.replace(one, build=dataclasses.replace(one.build, inputs=missing))
    with pytest.raises(SideError, match="linen toy: execute failed: OSError: no data"):
        one.run(host_state(), 0)


def test_an_interrupt_is_no_crash():
    clock = Clock()
    with pytest.raises(KeyboardInterrupt), clock.phase("linen toy", "execute"):
        raise KeyboardInterrupt
    assert clock.take()["execute"] > 0


def test_time_of_an_inner_block_is_not_counted_outside_again():
    clock = Clock()
    with clock.book("judge"):
        time.sleep(0.02)
        with clock.phase("left", "trace"):
            time.sleep(0.03)
            with pytest.raises(SideError), clock.phase("left", "lower"):
                time.sleep(0.04)
                raise ValueError("no")
        with clock.book("audit"):
            time.sleep(0.05)
    with clock.book("build"):
        time.sleep(0.06)
    booked = clock.take()
    for name, least in (("judge", 0.02), ("trace", 0.03), ("lower", 0.04), ("audit", 0.05), ("build", 0.06)):
        assert least <= booked.pop(name) < least + 0.3, name
    assert set(booked.values()) == {0.0} == set(clock.take().values())


def test_a_session_keeps_a_side_for_each_build_program_mesh_and_backend():
    toy, other = side().build, side().build
    toy = dataclasses.replace(
        toy, programs={**toy.programs, "again": Program(name="again", function=Counted())}
    )
    session = Session()

    def kept(build=toy, program="step", mesh="single", backend="cpu"):
        case = Case(
            id="toy",
            reference=lambda: build,
            candidate=lambda: build,
            program=program,
            placement=Placement(backend=backend),
        )
        return session.side(build, case, MeshSpec.parse(mesh))

    sides = [kept(), kept(other), kept(program="again"), kept(mesh=MESH), kept(backend="lower:v5p:2x2x1")]
    assert len(set(sides)) == len(sides) and kept() is sides[0]
