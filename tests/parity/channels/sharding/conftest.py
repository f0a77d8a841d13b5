"""Shared fixtures of the sharding tests: cases of the pair `sharded`, unchanged and from edited models."""

import dataclasses
import functools
import importlib
import sys
import types

import pytest

import parity
from models_nnx.shared.config import override
from models_nnx.shared.presets import preset, tiny
from parity.builds.build import Flavour
from parity.channels.sharding import sharding
from parity.channels.tree import tree
from parity.compare.evidence import Evidence
from parity.compare.session import Session
from parity.matrix.decoders import Variant
from parity.matrix.sharded import PAIR, VARIANTS

MODELS = ("models_linen", "models_nnx", "parity.matrix")


@pytest.fixture(scope="session")
def real():
    """``real("scan/train_step@...")`` is a case of the pair `sharded`."""
    cases = {case.id: case for case in PAIR.cases({})}
    return lambda id: cases[f"sharded-{id}"]


@pytest.fixture
def planted(planting, tmp_path, monkeypatch, real):
    """``planted(id, file, (old, new), ...)`` is a case with an edited models_nnx.

    Only the candidate has the edits; with ``both=True`` both twins have the edits of shared code.
    """

    def load(id, file, *edits, both=False):
        planting.copy(tmp_path, {file: edits})
        with monkeypatch.context() as patch:
            for name in [name for name in sys.modules if name.startswith(MODELS)]:
                patch.delitem(sys.modules, name)
            patch.setattr(parity, "matrix", parity.matrix)
            patch.syspath_prepend(tmp_path)
            pair = importlib.import_module("parity.matrix.sharded").PAIR
            edited = next(case for case in pair.cases({}) if case.id == f"sharded-{id}")
            decoders = importlib.import_module("parity.matrix.decoders")
            for flavour in Flavour:  # imported now: a side is built later, when the original models are back
                decoders.builder(flavour)
            for name in [name for name in sys.modules if name.startswith(MODELS)]:
                del sys.modules[name]
        return edited if both else dataclasses.replace(real(id), candidate=edited.candidate)

    return load


@pytest.fixture(scope="session")
def seen():
    """``seen(case)`` returns the findings of the tree and sharding channels; it only traces, without lowering."""

    def run(case):
        work = Evidence.of(case, Session())
        proved = types.SimpleNamespace(
            sides=work.sides,
            builds=work.builds,
            session=work.session,
            weights=work.weights,
            same_program=False,
            proof_covers_compiled=True,
        )
        results = {"tree": tree.judge(work), "sharding": sharding.judge(proved)}
        return {name: [finding.sentence() for finding in result.findings] for name, result in results.items()}

    return run


@pytest.fixture(scope="session")
def ruled(real):
    """``ruled(id, name, change)`` is a case whose candidate has the rules that ``change`` makes from the default."""

    def make(id, name, change):
        config = override(tiny(preset("llama2-70b")), VARIANTS[id.split("/")[0]])
        config = dataclasses.replace(config, rules=change(config.rules))
        build = functools.partial(Variant(f"sharded-{name}", config).build, Flavour.NNX)
        return dataclasses.replace(real(id), candidate=build)

    return make
