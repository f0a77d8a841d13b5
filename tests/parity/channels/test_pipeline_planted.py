"""Bugs planted only in the NNX pipeline; tests/models_nnx/test_ops_pipeline.py covers shared code."""

import functools
import types

import jax
import jax.numpy as jnp
import pytest

import models_nnx.pipeline
from models_nnx.shared import ops
from models_nnx.shared.config import Gather
from models_nnx.shared.presets import preset, tiny
from parity.builds.build import Flavour
from parity.builds.meshes import MeshSpec
from parity.cases.case import Case
from parity.compare.session import Session
from parity.matrix.decoders import Variant
from parity.matrix.pipeline import pipelined
from parity.report.table import findings_text
from parity.run.run import run_case
from parity.verdicts import BLOCKING

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unoptimised")]

PREFETCH = {"stages": 2, "microbatches": 4, "repeats": 2, "gather": Gather.PER_REPEAT}


@pytest.fixture
def unoptimised():
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def result_of(bug, options, channels, *, preset_name="llama2-70b", **changes):
    config = pipelined(tiny(preset(preset_name)), options, **changes)
    case = Case(
        id=f"planted/{bug}",
        reference=functools.partial(
            Variant("planted reference", config, shape=(16, 40)).build, Flavour.LINEN
        ),
        candidate=functools.partial(Variant(f"planted {bug}", config, shape=(16, 40)).build, Flavour.NNX),
        program="grad",
        mesh=MeshSpec.parse("stage2.fsdp2-auto"),
    )
    result = run_case(case, Session(), channels)
    caught = {name for name, channel in result.channels.items() if channel.verdict in BLOCKING}
    return caught, findings_text(result)


def altered(monkeypatch, **names):
    """Replaces ``ops`` of the NNX pipeline; the Linen one keeps the original."""
    shared = {name: getattr(ops, name) for name in dir(ops)}
    monkeypatch.setattr(models_nnx.pipeline, "ops", types.SimpleNamespace(**{**shared, **names}))


@pytest.mark.long
def test_the_twins_as_they_are_pass():
    caught, _ = result_of("nothing", PREFETCH, ("program", "rng"), dropout=0.1)
    assert caught == set()


@pytest.mark.long
def test_one_dropout_key_for_all_iterations_is_named(monkeypatch):
    altered(monkeypatch, stage_key=lambda key, iteration, stage: ops.stage_key(key, 0, stage))
    caught, text = result_of("one key", PREFETCH, ("program", "rng"), dropout=0.1)
    assert "rng" in caught and "dropout.py" in text


@pytest.mark.long
def test_iterations_that_are_not_rematerialised_are_named(monkeypatch):
    altered(monkeypatch, checkpointed=lambda iterate, remat, *, scanned: iterate)
    caught, text = result_of("no remat", {**PREFETCH, "gather": Gather.ONCE}, ("program", "loops"))
    assert "loops" in caught and "pipeline.py" in text


@pytest.mark.long
def test_a_checkpoint_outside_the_scan_is_named(monkeypatch):
    """History C1."""

    class Outside(ops.Pipe):
        def run(self, iterate, leaves, inputs, x_BTD):
            run = functools.partial(super().run, iterate)
            return jax.checkpoint(run)(leaves, inputs, x_BTD)

    altered(monkeypatch, Pipe=Outside, checkpointed=lambda iterate, remat, *, scanned: iterate)
    caught, text = result_of("outside", {**PREFETCH, "gather": Gather.ONCE}, ("program", "loops"))
    assert "loops" in caught and "pipeline.py" in text


@pytest.mark.long
def test_two_gathers_per_repeat_are_named(monkeypatch):
    """History C2: the weights of the current repeat are gathered again instead of carried."""

    class Twice(ops.Pipe):
        def _gather(self, leaves, repeat):
            ahead = super()._gather(leaves, jnp.minimum(repeat + 1, self.config.repeats - 1))
            return [a + 0 * b for a, b in zip(super()._gather(leaves, repeat), ahead, strict=True)]

    altered(monkeypatch, Pipe=Twice)
    caught, text = result_of("twice", PREFETCH, ("program", "collectives"))
    assert "collectives" in caught and "all-gather" in text and "pipeline.py" in text, text


@pytest.mark.long
def test_sown_values_that_stay_in_the_loop_are_an_error(monkeypatch):
    """History A2."""
    monkeypatch.setattr(models_nnx.pipeline, "SOWN", ())
    options = {"stages": 2, "microbatches": 2}
    caught, text = result_of("nothing sown", options, ("program",), preset_name="mixtral-8x7b")
    assert caught == {"program"} and "SownError" in text
