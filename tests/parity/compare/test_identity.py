"""A build is identified by object, not by name: cases in one session never get each other's programs or states."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from parity.builds.build import Flavour, linen_build
from parity.cases.case import Case
from parity.compare.session import Session
from parity.run.run import run_case
from parity.verdicts import Verdict

# B batch, D in
B, D = 5, 4
REPLICATED = jax.sharding.PartitionSpec()


def build(name, function, scale=1.0, draw=jax.random.normal):
    def forward(state, inputs):
        return {"values": {"out": function(inputs["x"] * state["params"]["w"])}}

    def step(state, inputs):
        value, grads = jax.value_and_grad(lambda p: jnp.sum(function(inputs["x"] * p["w"]) ** 2))(
            state["params"]
        )
        after = {"w": state["params"]["w"] - 0.1 * grads["w"]}
        return {"values": {"loss": value}, "state": {"params": after}}

    return linen_build(
        name,
        lambda key: {"params": {"w": scale * draw(key, (B, D))}},
        {"forward": (forward, {}), "step": (step, {"steps": 3})},
        inputs=lambda seed: {"x": np.random.default_rng(seed).standard_normal((B, D), np.float32)},
        specs=lambda tree, mesh: jax.tree.map(lambda leaf: REPLICATED, tree),
        input_specs=lambda leaves, mesh: dict.fromkeys(leaves, REPLICATED),
    )


def case(reference, candidate, program="forward", id="toy"):
    return Case(
        id=f"{id}/{program}@single", reference=lambda: reference, candidate=lambda: candidate, program=program
    )


@pytest.mark.parametrize("paranoid", [False, True])
@pytest.mark.parametrize("program", ["forward", "step"])
def test_two_builds_of_one_name_are_two_sides(program, paranoid):
    squared, cubed = build("toy", lambda x: x**2), build("toy", lambda x: x**3)
    result = run_case(case(squared, cubed, program), Session(paranoid=paranoid))
    assert result.channels["program"].verdict is Verdict.UNPROVED
    assert result.verdict == "failed"


@pytest.mark.parametrize("paranoid", [False, True])
def test_cases_whose_builds_keep_their_names_get_separate_programs(paranoid):
    """The second case of a pair, with different settings of the candidate only, is not taken for the first."""
    bench = Session(paranoid=paranoid)
    plain = build("reference", lambda x: x * 3)
    first = run_case(case(plain, build("candidate", lambda x: x * 3)), bench)
    second = run_case(case(plain, build("candidate", lambda x: x * 5), id="other"), bench)
    assert (first.verdict, second.verdict) == ("passed", "failed")


def test_states_and_draws_go_by_build_too():
    """A different initialiser under the same names is detected although its program is proved."""
    bench = Session()
    sides = [build("reference", lambda x: x), build("candidate", lambda x: x, scale=2.0)]
    run_case(case(sides[0], sides[0]), bench)
    assert bench.state(sides[0]) is bench.state(sides[0])
    assert bench.state(sides[0]) is not bench.state(sides[1])


def test_initial_states_are_cached_by_build():
    bench, names = Session(), ("reference", "candidate")

    def drawn(scale):
        sides = [build(name, lambda x: x, scale=scale[name]) for name in names]
        object.__setattr__(
            sides[1], "flavour", Flavour.NNX
        )  # two flavours, so that initial bits are compared
        return run_case(case(*sides, "step", id=str(scale)), bench, ("rng",)).channels["rng"]

    assert drawn({"reference": 1.0, "candidate": 1.0}).verdict is Verdict.PROVED
    assert drawn({"reference": 1.0, "candidate": 2.0}).verdict is Verdict.FAILED
