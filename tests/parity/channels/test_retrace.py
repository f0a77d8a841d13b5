"""A step that is traced again at every call is caught, and the changing argument is named."""

import dataclasses
import functools
import itertools
import logging

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax.sharding import PartitionSpec

from parity.builds.build import linen_build, nnx_build
from parity.builds.meshes import MeshSpec
from parity.cases.case import Case
from parity.channels.retrace import retrace
from parity.compare.evidence import Evidence
from parity.compare.session import Session
from parity.verdicts import Doubt, Verdict

B, D = 4, 6
NUMBERS = itertools.count()


@functools.partial(jax.jit, static_argnames="number")
def update(params, x, number=0):
    return params - 0.1 * x.sum(0) * (number >= 0)


def plain(state, inputs):
    return {"state": {**state, "params": update(state["params"], inputs["x"]), "step": state["step"] + 1}}


def counting(state, inputs):
    """History O1: the number of the step is a static argument."""
    return {"state": {**state, "params": update(state["params"], inputs["x"], next(NUMBERS))}}


def widening(state, inputs):
    """The counter starts as uint32 and is returned as int32."""
    after = plain(state, inputs)["state"]
    return {"state": {**after, "step": after["step"].astype(jnp.int32)}}


def growing(state, inputs):
    """History A3: values left behind by a step are state of the next one."""
    return {"state": {**plain(state, inputs)["state"], "sown": inputs["x"].sum()}}


def create(key, step=None):
    return {
        "params": jax.random.normal(key, (D,)),
        "step": jnp.zeros((), jnp.uint32) if step is None else step,
    }


def comparison(reference, candidate, program="step", made=create, mesh="single", **options):
    def build(name, step):
        return linen_build(
            name,
            made,
            {"step": (step, {"steps": 3, **options})},
            inputs=lambda seed: {"x": np.random.default_rng(seed).standard_normal((B, D), np.float32)},
            specs=lambda tree, mesh: jax.tree.map(lambda leaf: PartitionSpec(), tree),
            input_specs=lambda leaves, mesh: {"x": PartitionSpec()},
        )

    sides = [build("left", reference), build("right", candidate)]
    case = Case(
        id=f"toy/step@{mesh}",
        reference=lambda: sides[0],
        candidate=lambda: sides[1],
        program=program,
        mesh=MeshSpec.parse(mesh),
    )
    return Evidence.of(case, Session())


def outcome(reference, candidate, **options):
    return retrace.look(comparison(reference, candidate, **options))


@pytest.mark.slow
def test_a_step_with_stable_types_is_traced_once():
    result = outcome(plain, plain)
    assert (result.verdict, result.findings) == (Verdict.EQUAL, ())
    assert result.detail == "traces of a training loop: 1"


def closing(state, inputs):
    """Makes a new function, as scan bodies are, and calls it with two types."""

    @jax.jit
    def double(x):
        return x + x

    step = double(state["step"])
    return {"state": {"params": state["params"] - double(inputs["x"]).sum(0), "step": step}}


@pytest.mark.slow
def test_a_function_made_in_the_step_may_be_traced_for_two_types():
    result = outcome(closing, plain)
    assert (result.verdict, result.findings) == (Verdict.EQUAL, ())


@pytest.mark.slow
@pytest.mark.parametrize("side", ["reference", "candidate"])
def test_a_static_argument_that_is_new_in_every_step(side):
    sides = {"reference": plain, "candidate": plain, side: counting}
    result = outcome(**sides)
    (finding,) = result.findings
    assert result.verdict is Verdict.FAILED
    assert finding.where.startswith("update (") and finding.where.endswith(f"of the {side}")
    assert "test_retrace.py" in finding.where
    assert getattr(finding, side).startswith("traced again in the second call: ")
    assert "static argument" in finding.cause


def inside(function):
    """Returns a step that closes over a separate jitted function, made once."""
    own = jax.jit(lambda params, x, number: params - 0.1 * x.sum(0) * (number >= 0), static_argnums=2)
    return lambda state, inputs: function(own, state, inputs)


def of_a_package(state, inputs):
    """Optax's function, jitted with a static argument that is new each time."""
    added = jax.jit(optax.tree_utils.tree_scale, static_argnums=0)(next(NUMBERS), state["params"])
    return {"state": {**plain(state, inputs)["state"], "params": added}}


@pytest.mark.slow
@pytest.mark.parametrize(
    "step",
    [
        inside(
            lambda own, state, inputs: {
                "state": {**state, "params": own(state["params"], inputs["x"], next(NUMBERS))}
            }
        ),
        of_a_package,
    ],
    ids=["closed over", "of a package"],
)
def test_it_is_found_wherever_the_function_lives(step):
    assert len(outcome(plain, step).findings) == 1


@pytest.mark.long
@pytest.mark.parametrize(("step", "calls"), [(plain, 2), (closing, 1)])
def test_a_step_without_lasting_callables_is_traced_once(step, calls):
    """A second trace would be useless here, and takes as long as the trace that all channels share."""
    made = []

    def counted(state, inputs):
        made.append(1)
        return step(state, inputs)

    work = comparison(counted, counted)
    assert work.reference.traced
    made.clear()
    jax.clear_caches()  # else functions that other tests traced count
    assert retrace.look(work).verdict is Verdict.EQUAL
    assert len(made) == 2 * calls


@pytest.mark.parametrize("mesh", ["data8-auto", "data4.fsdp2-explicit"])
def test_it_is_found_on_a_mesh(mesh):
    result = outcome(plain, counting, mesh=mesh)
    assert [finding.where.split()[0] for finding in result.findings] == ["update"]


@pytest.mark.parametrize("between", ["nothing", "clear", "another"])
def test_it_is_found_regardless_of_earlier_traces_and_cleared_caches(between):
    """The first call is the trace that the other channels read, which may be long ago."""
    work = comparison(plain, counting)
    assert work.candidate.traced and work.reference.traced
    if between == "clear":
        jax.clear_caches()
    if between == "another":
        update(jnp.ones((D + 1,)), jnp.ones((B, D + 1)), number=10**9)
    assert [finding.where.split()[0] for finding in retrace.look(work).findings] == ["update"]


@pytest.mark.long
def test_a_build_that_is_made_once_keeps_its_finding_in_another_session():
    """Earlier JAX traces for other builds are a property of the build: a later session has traced its own step."""

    def step(own, state, inputs, numbers=NUMBERS):
        return {"state": {**state, "params": own(state["params"], inputs["x"], next(numbers))}}

    case = comparison(inside(functools.partial(step, numbers=itertools.repeat(0))), inside(step)).case
    jax.clear_caches()  # else functions that other tests traced cause another trace
    for _ in range(2):
        assert len(retrace.look(Evidence.of(case, Session())).findings) == 1


def counted(function, calls):
    def step(state, inputs):
        calls.append(function)
        return function(state, inputs)

    return step


def test_the_number_of_traces_of_a_step():
    """It is traced once for all channels and once for a second call; on further meshes of a kind once."""
    calls = {"reference": [], "candidate": []}
    work = comparison(counted(plain, calls["reference"]), counted(plain, calls["candidate"]))
    calls["reference"].clear()
    assert work.reference.lowered and work.reference.returned
    assert len(calls["reference"]) == 1
    assert retrace.look(work).verdict is Verdict.EQUAL
    assert {name: len(made) for name, made in calls.items()} == {"reference": 2, "candidate": 2}
    for mesh, more in (("data8-auto", 2), ("data2.fsdp4-auto", 1), ("data8-explicit", 2)):
        calls["reference"].clear()
        elsewhere = dataclasses.replace(work.case, mesh=MeshSpec.parse(mesh))
        assert retrace.look(Evidence.of(elsewhere, work.session)).verdict is Verdict.EQUAL
        assert len(calls["reference"]) == more, mesh


def test_a_leaf_that_comes_back_with_another_dtype():
    result = outcome(plain, widening)
    (finding,) = result.findings
    assert finding.where == "step of the candidate"
    assert (finding.reference, finding.candidate) == (
        "stable, or another name",
        "takes uint32[], returns int32[], made at tests/parity/channels/test_retrace.py:45 in widening",
    )
    assert result.detail == "traces of a training loop: 1 -> 2 or more"


def test_a_weak_type_that_is_lost_is_one_more_trace():
    weak = functools.partial(create, step=0.0)
    leaves = jax.eval_shape(weak, jax.random.key(0))
    assert leaves["step"].weak_type

    def strong(state, inputs):
        return {"state": {**plain(state, inputs)["state"], "step": jnp.float32(1) + state["step"]}}

    (finding,) = outcome(plain, strong, made=weak).findings
    assert finding.candidate.startswith("takes float32[], weakly typed, returns float32[], made at ")
    assert finding.doubts == (Doubt.HARMLESS,) and outcome(plain, widening).findings[0].doubts == ()


def chosen(key):
    return {**create(key), "step": jnp.where(jax.random.bernoulli(key), 0.0, 1.0)}


def test_a_weak_type_is_named_where_the_leaf_is_created():
    def strong(state, inputs):
        return {"state": {**plain(state, inputs)["state"], "step": jnp.float32(1) + state["step"]}}

    (finding,) = outcome(plain, strong, made=chosen).findings
    assert ", created at " in finding.candidate and finding.candidate.endswith(" in chosen")


def test_a_leaf_that_a_step_adds():
    (finding,) = outcome(plain, growing).findings
    assert finding.where == "sown of the candidate"
    assert finding.candidate.startswith("takes no such leaf, returns float32[], made at ")
    assert finding.candidate.endswith(" in growing")


def test_a_program_without_state_is_skipped():
    result = outcome(*[lambda state, inputs: {"values": {"y": inputs["x"]}}] * 2)
    assert result.verdict is Verdict.SKIPPED


def test_the_logger_is_left_as_it_was():
    logger = logging.getLogger("jax")
    before = (logger.level, logger.propagate, list(logger.handlers))
    outcome(plain, counting)
    assert (logger.level, logger.propagate, list(logger.handlers)) == before


class Counted(nnx.Module):
    def __init__(self, key):
        self.params, self.step = (
            nnx.Param(jax.random.normal(key, (D,))),
            nnx.Variable(jnp.zeros((), jnp.uint32)),
        )
        self.training, self.mode = False, "eval"
        self.calls, self.name, self.limit = 0, "counted", float("nan")


def test_a_python_attribute_that_a_step_changes_is_named():
    """The array is state and may change; the number is a Python value, and keeps the value of the trace."""

    def build(name, step):
        return nnx_build(
            name,
            Counted,
            {"step": (step, {"steps": 3})},
            inputs=lambda seed: {"x": np.random.default_rng(seed).standard_normal((B, D), np.float32)},
            specs=lambda tree, mesh: jax.tree.map(lambda leaf: PartitionSpec(), tree),
            input_specs=lambda leaves, mesh: {"x": PartitionSpec()},
        )

    def stepping(module, inputs):
        module.params[...] -= 0.1 * inputs["x"].sum(0)
        module.step[...] += 1
        module.training, module.mode = True, "train"  # set once, unchanged in the next call
        return {"state": module}

    def counting(module, inputs):
        module.calls += 1
        return stepping(module, inputs)

    def compared(reference, candidate):
        sides = [build("left", reference), build("right", candidate)]
        case = Case(
            id="toy/step@single", reference=lambda: sides[0], candidate=lambda: sides[1], program="step"
        )
        return retrace.look(Evidence.of(case, Session()))

    assert compared(stepping, stepping).findings == ()
    (finding,) = compared(stepping, counting).findings
    assert finding.where == "attribute calls of the candidate"
    assert finding.candidate == "0 before the step, 1 after it" and "nnx.Variable" in finding.next_step
