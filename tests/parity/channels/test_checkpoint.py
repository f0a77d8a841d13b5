"""The channel ``checkpoint`` on a toy that saves itself, correctly and with faults."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models_nnx.shared import store
from parity.builds.build import Saving, linen_build
from parity.cases.case import Case
from parity.channels import CHANNELS
from parity.compare.evidence import Evidence
from parity.compare.session import Session
from parity.compare.side import Side
from parity.report.table import findings_text
from parity.run.run import run_case

STATE = store.Kind.TRAIN_STATE


def train_step(state, inputs):
    slope = jax.grad(lambda w: jnp.mean((inputs["x"] @ w) ** 2))(state["params"]["w"])
    momentum = 0.9 * state["opt_state"]["m"] + slope
    params = {"w": state["params"]["w"] - 0.01 * momentum}
    return {
        "values": {"norm": jnp.sum(slope**2)},
        "state": {"params": params, "opt_state": {"m": momentum}, "step": state["step"] + 1},
    }


def create(key):
    w = jax.random.normal(key, (4, 6))
    return {"params": {"w": w}, "opt_state": {"m": jnp.zeros_like(w)}, "step": jnp.zeros((), jnp.uint32)}


def save(state, folder):
    store.write(folder, state, kind=STATE, about={})


def load(folder, like):
    return store.read(folder, like, kind=STATE)


def load_without_momentum(folder, like):
    found = load(folder, like)
    return {**found, "opt_state/m": jnp.zeros_like(found["opt_state/m"])}


def export(state, folder):
    store.write(folder, {"params/w": state["params/w"]}, kind=store.Kind.PARAMETERS, about={})


def export_the_momentum(state, folder):
    export({"params/w": state["opt_state/m"]}, folder)


def load_export(folder):
    return store.read(
        folder, {"params/w": jax.ShapeDtypeStruct((4, 6), "float32")}, kind=store.Kind.PARAMETERS
    )


WHOLE = Saving(save=save, load=load, export=export, load_export=load_export)


def build(name, **faults):
    saving = dataclasses.replace(WHOLE, **faults)
    return linen_build(
        name,
        create,
        {"train_step": (train_step, {"steps": 2})},
        inputs=lambda seed: {"x": np.random.default_rng(seed).standard_normal((5, 4), np.float32)},
        specs=lambda tree, mesh: jax.tree.map(lambda leaf: jax.sharding.PartitionSpec(), tree),
        input_specs=lambda leaves, mesh: {},
        saving=saving,
    )


def result(paranoid=True, **faults):
    case = Case(
        id="toy/train_step@single",
        reference=lambda: build("toy reference"),
        candidate=lambda: build("toy candidate", **faults),
        program="train_step",
    )
    return run_case(case, Session(paranoid=paranoid), ("checkpoint",))


@pytest.mark.slow
@pytest.mark.parametrize("paranoid", [False, True])
def test_a_complete_restore_passes(paranoid):
    channel = result(paranoid).channels["checkpoint"]
    assert (channel.verdict, channel.findings) == ("bitwise", ())
    assert ("3 leaves saved after 2 steps" in channel.detail) is paranoid


@pytest.mark.slow
@pytest.mark.parametrize("paranoid", [False, True])
def test_a_proved_case_is_not_compiled(paranoid):
    case = Case(
        id="toy/train_step@single",
        reference=lambda: build("toy reference"),
        candidate=lambda: build("toy candidate"),
        program="train_step",
    )
    work = Evidence.of(case, Session(paranoid=paranoid))
    assert CHANNELS["checkpoint"].look(work).verdict == "bitwise"
    assert [(Side.compiled in side.memo) for side in (work.reference, work.candidate)] == [paranoid] * 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("faults", "words"),
    [
        (
            {"load": load_without_momentum},
            ["opt_state/m", "candidate resumed after 2 of 4 steps: params/w", "in load_without_momentum"],
        ),
        (
            {"export": export_the_momentum},
            ["parameters of the candidate, loaded by the reference: params/w", "in export_the_momentum"],
        ),
    ],
)
@pytest.mark.parametrize("paranoid", [False, True])
def test_a_fault_is_named(paranoid, faults, words):
    found = result(paranoid, **faults)
    text = findings_text(found)
    words = [word for word in words if paranoid or "resumed" not in word]
    assert found.verdict == "failed" and [word for word in words if word not in text] == [], text


@pytest.mark.slow
def test_state_that_is_not_in_the_checkpoint_is_named(monkeypatch):
    """A step depends on something outside its state that a new process would not have."""
    import parity.channels.checkpoint as module

    original = module._Kept.after
    calls = []

    def after(self, state, seed, steps):
        calls.append(steps)
        found = original(self, state, seed, steps)
        return {**found, "params/w": found["params/w"] + len(calls)}

    monkeypatch.setattr(module._Kept, "after", after)
    found = result()
    assert found.verdict == "failed" and "state that is not in the checkpoint" in findings_text(found)


def test_builds_that_offer_nothing_are_skipped():
    case = Case(
        id="toy/train_step@single",
        reference=lambda: dataclasses.replace(build("plain reference"), saving=None),
        candidate=lambda: build("plain candidate"),
        program="train_step",
    )
    channel = CHANNELS["checkpoint"].look(Evidence.of(case, Session()))
    assert (channel.verdict, channel.detail) == ("skipped", "the builds offer no save and load")
