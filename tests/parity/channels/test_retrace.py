"""A step that is traced again in every step is caught, and what changed is named."""

import functools
import itertools
import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from parity.cases.case import Case
from parity.channels.retrace import CHANNEL
from parity.comparison.comparison import Comparison, Workbench
from parity.programs.build import linen_build
from parity.verdicts import Verdict

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
    """The counter starts as uint32 and comes back as int32."""
    after = plain(state, inputs)["state"]
    return {"state": {**after, "step": after["step"].astype(jnp.int32)}}


def growing(state, inputs):
    """History A3: what a step leaves behind is state of the next one."""
    return {"state": {**plain(state, inputs)["state"], "sown": inputs["x"].sum()}}


def create(key, step=None):
    return {
        "params": jax.random.normal(key, (D,)),
        "step": jnp.zeros((), jnp.uint32) if step is None else step,
    }


def outcome(reference, candidate, program="step", made=create, **options):
    def build(name, step):
        return linen_build(
            name,
            made,
            {"step": (step, {"steps": 3, **options})},
            inputs=lambda seed: {"x": np.random.default_rng(seed).standard_normal((B, D), np.float32)},
            specs=lambda tree, mesh: {},
            input_specs=lambda leaves, mesh: {},
        )

    sides = [build("left", reference), build("right", candidate)]
    case = Case(id="toy/step@single", reference=lambda: sides[0], candidate=lambda: sides[1], program=program)
    return CHANNEL.look(Comparison(case, Workbench()))


def test_a_step_with_stable_types_is_traced_once():
    result = outcome(plain, plain)
    assert (result.verdict, result.findings) == (Verdict.EQUAL, ())
    assert result.detail == "traces of a training loop: 1"


def closing(state, inputs):
    """Makes a function of its own, as scan bodies are, and calls it with two types."""

    @jax.jit
    def double(x):
        return x + x

    step = double(state["step"])
    return {"state": {"params": state["params"] - double(inputs["x"]).sum(0), "step": step}}


def test_a_function_made_in_the_step_may_be_traced_for_two_types():
    result = outcome(closing, plain)
    assert (result.verdict, result.findings) == (Verdict.EQUAL, ())


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


def test_a_leaf_that_comes_back_with_another_dtype():
    result = outcome(plain, widening)
    (finding,) = result.findings
    assert finding.where == "step of the candidate"
    assert (finding.reference, finding.candidate) == (
        "stable, or another name",
        "takes uint32[], returns int32[]",
    )
    assert result.detail == "traces of a training loop: 1 -> 2 or more"


def test_a_weak_type_that_is_lost_is_one_more_trace():
    weak = functools.partial(create, step=0.0)
    leaves = jax.eval_shape(weak, jax.random.key(0))
    assert leaves["step"].weak_type

    def strong(state, inputs):
        return {"state": {**plain(state, inputs)["state"], "step": jnp.float32(1) + state["step"]}}

    (finding,) = outcome(plain, strong, made=weak).findings
    assert finding.candidate == "takes float32[], weakly typed, returns float32[]"


def test_a_leaf_that_a_step_adds():
    (finding,) = outcome(plain, growing).findings
    assert finding.where == "sown of the candidate"
    assert finding.candidate == "takes no such leaf, returns float32[]"


def test_a_program_without_state_is_skipped():
    result = outcome(*[lambda state, inputs: {"values": {"y": inputs["x"]}}] * 2)
    assert result.verdict is Verdict.SKIPPED


def test_the_logger_is_left_as_it_was():
    logger = logging.getLogger("jax")
    before = (logger.level, logger.propagate, list(logger.handlers))
    outcome(plain, counting)
    assert (logger.level, logger.propagate, list(logger.handlers)) == before
