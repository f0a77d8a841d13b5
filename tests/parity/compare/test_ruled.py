"""Proofs by rules: they settle values, and leave structure to the compiled programs."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from parity.builds.build import linen_build
from parity.cases.case import Accept, Case
from parity.channels import channel
from parity.compare.backends.registry import Devices
from parity.compare.evidence import Evidence
from parity.compare.session import Session
from parity.run.run import run_case
from parity.verdicts import Verdict

# B batch, D in, F out
B, D, F = 5, 4, 3
REPLICATED = jax.sharding.PartitionSpec()


def batch(seed):
    return {"x": np.random.default_rng(seed).standard_normal((B, D), np.float32)}


def plain(params, inputs):
    return jnp.tanh(inputs["x"] @ params["w"]) + jax.lax.broadcast_in_dim(params["b"], (1, F), (1,))


def ruled(params, inputs):
    """The forward pass with the unit axis added by a reshape."""
    return jnp.tanh(inputs["x"] @ params["w"]) + jax.lax.reshape(params["b"], (1, F))


def loose(params, inputs):
    """The forward pass on transposed arrays."""
    return (jnp.tanh(inputs["x"] @ params["w"]).T + params["b"][:, None]).T


def forward(apply, state, inputs):
    with jax.numpy_rank_promotion("allow"):
        return {"values": {"out": apply(state["params"], inputs)}}


def state(key):
    return {"params": {"w": jax.random.normal(key, (D, F)), "b": jnp.zeros(F)}}


def case(candidate, **rest):
    sides = [
        linen_build(
            name,
            state,
            {"step": (functools.partial(forward, function), {})},
            inputs=batch,
            specs=lambda tree, mesh: jax.tree.map(lambda leaf: REPLICATED, tree),
            input_specs=lambda leaves, mesh: dict.fromkeys(leaves, REPLICATED),
        )
        for name, function in (("left", plain), ("right", candidate))
    ]
    return Case(
        id="toy/step@single", reference=lambda: sides[0], candidate=lambda: sides[1], program="step", **rest
    )


@pytest.mark.parametrize("require", [Verdict.ARBITRATED, Verdict.PROVED])
def test_values_are_settled_and_structure_is_compiled(require):
    channels = run_case(case(ruled, accept=Accept(require=require)), Session()).channels
    assert (channels["program"].verdict, channels["values"].verdict) == ("proved", "proved")
    assert (
        channels["values"].detail == "equal for all inputs, each operation rounding by itself (rules: moves)"
    )
    assert [row["rule"] for row in channels["program"].tables["rules"]] == ["moves"]
    assert all(row["times"] for row in channels["program"].tables["rules"])
    assert "the same values (rules: moves; " in channels["program"].detail
    assert {channels[name].verdict for name in ("memory", "dots", "loops")} == {"equal"}
    assert "lowered" not in channels["loops"].tables


def test_one_program_settles_structure_too():
    channels = run_case(case(plain), Session()).channels
    assert {channels[name].verdict for name in ("values", "memory", "dots")} == {"proved"}
    assert "rules" not in channels["program"].detail + channels["values"].detail
    assert not channels["program"].tables


def test_properties_of_a_comparison():
    for apply, settled, same in ((plain, True, True), (ruled, True, False), (loose, False, False)):
        work = Evidence.of(case(apply), Session())
        assert (work.proof_covers_values, work.same_program, work.proof_covers_compiled) == (
            settled,
            same,
            same,
        )


def test_a_case_proved_by_rules_that_still_runs_must_give_equal_bits():
    channels = run_case(case(ruled, accept=Accept(paranoid=True)), Session()).channels
    assert (channels["program"].verdict, channels["values"].verdict) == ("proved", "bitwise")


def test_loose_rules_settle_nothing_and_are_named(monkeypatch):
    result = run_case(case(loose), Session()).channels
    assert (result["program"].verdict, result["values"].verdict) == ("reordered", "bitwise")
    assert "past-moves" in result["program"].detail
    monkeypatch.setattr(Devices, "executes", False)
    monkeypatch.setattr(channel, "compile_to_one", lambda work: False)
    values = run_case(case(loose), Session()).channels["values"]
    assert values.verdict == "reordered" and "past-moves" in values.detail
