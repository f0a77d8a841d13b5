"""Checks the flavour of a program, and batches that hide packing bugs."""

import dataclasses
import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

import parity
from parity.builds.build import Flavour, nnx_build
from parity.builds.meshes import MeshSpec
from parity.channels.program import Origins, attest, origins
from parity.compare.backends.registry import find
from parity.compare.clock import Clock
from parity.compare.session import Session
from parity.compare.side import Side
from parity.matrix.llama2 import PAIR
from parity.report.table import findings_text
from parity.run.run import run_case


def real(id):
    return next(case for case in PAIR.cases({}) if case.id == id)


@pytest.mark.long
def test_one_segment_in_the_batch_is_vacuous_if_values_decide():
    """History P2: rows of one document hide packing bugs. A proof holds for all batches."""
    case = real("llama2-scan/forward@fsdp4.tensor2-auto")

    def packed_into_one(make):
        build = make()

        def inputs(seed):
            batch = build.inputs(seed)
            return {**batch, "segments": np.ones_like(batch["segments"])}

        return lambda: dataclasses.replace(build, name=f"{build.name} one segment", inputs=inputs)

    sides = {name: packed_into_one(getattr(case, name)) for name in ("reference", "candidate")}
    result = run_case(dataclasses.replace(case, mesh=MeshSpec(), **sides), Session(paranoid=True))
    assert (result.verdict, result.channels["values"].verdict) == ("vacuous", "vacuous")
    assert "batch segments: expected entries that differ, got all 320 entries are 1" in findings_text(result)


def origins_of(*files, **modules):
    return Origins({Flavour(name): number for name, number in modules.items()}, dict(files))


def test_a_program_without_operations_of_its_model_code_is_not_attested():
    build = real("llama2-scan/forward@fsdp4.tensor2-auto").candidate()
    own, library = ("/somewhere/models_nnx/mlp.py", 7), ("/somewhere/jax/lax.py", 90)
    foreign = ("models_linen/",)
    assert attest(build, origins_of(own, library), foreign) == []
    (finding,) = attest(build, origins_of(library), foreign)
    assert (
        finding.where == f"flavour of {build.name}" and "no operation from models_nnx/" in finding.candidate
    )
    (finding,) = attest(build, origins_of(own, ("/somewhere/models_linen/mlp.py", 2)), foreign)
    assert finding.candidate == "2 operations from models_linen/"
    (finding,) = attest(build, origins_of(own, linen=3), foreign)
    assert finding.candidate == "all 3 operations of modules are of linen modules"


class Doubling(nnx.Module):
    def __init__(self):
        self.weight = nnx.Param(jnp.ones(3))

    def __call__(self, x):
        return jax.lax.fori_loop(0, 2, lambda _, x: self.scaled(jnp.where(x > 0, x, jnp.sin(x))), x)

    def scaled(self, x):
        return x * self.weight


class Unneeded(linen.Module):
    @linen.compact
    def __call__(self, x):
        return 2 * x


def test_only_needed_values_of_the_trace_count():
    def forward(model, inputs):
        Unneeded().apply({}, inputs["x"])
        return {"values": {"y": model(inputs["x"]) + 1}}

    build = nnx_build(
        "doubling",
        lambda key: Doubling(),
        {"forward": (forward, {})},
        inputs=lambda seed: {"x": np.ones(3, np.float32)},
        specs=lambda tree, mesh: jax.tree.map(lambda leaf: jax.sharding.PartitionSpec(), tree),
        input_specs=lambda leaves, mesh: dict.fromkeys(leaves, jax.sharding.PartitionSpec()),
    )
    found = origins(Side(build, build.programs["forward"], MeshSpec(), find("cpu"), Clock()))
    assert set(found.modules) == {Flavour.NNX}
    assert found.files[__file__] > found.modules[Flavour.NNX] >= 3
    assert not [file for file in found.files if "pytest" in file or "running" in file]


LINEN_FILE = """
from flax import linen as nn
import jax.numpy as jnp

class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(3, name="dense")(x)

def loss(outputs, batch):
    return jnp.mean((outputs - batch["y"]) ** 2)
"""
NNX_FILE = """
import jax.numpy as jnp
from flax import nnx
{0}

class Net(nnx.Module):
    def __init__(self, rngs):
        self.dense = nnx.Linear(4, 3, rngs=rngs)

    def __call__(self, x):
        return {1}(self.dense(x))
"""


@pytest.mark.parametrize("borrowed", [False, True])
def test_a_loss_in_the_file_of_one_twin_is_code_of_neither(borrowed, tmp_path, monkeypatch):
    names = [f"{name}_{borrowed}".lower() for name in ("lx", "nx")]
    lines = (f"from {names[0]} import scale", "scale") if borrowed else ("", "")
    texts = (f"{LINEN_FILE}\ndef scale(x):\n    return 2 * x\n", NNX_FILE.format(*lines))
    monkeypatch.syspath_prepend(tmp_path)
    for name, text in zip(names, texts, strict=True):
        (tmp_path / f"{name}.py").write_text(text)
    modules = [importlib.import_module(name) for name in names]
    rng = np.random.default_rng(0)
    batch = {name: rng.normal(size=(2, size)).astype("float32") for name, size in (("x", 4), ("y", 3))}
    pair = parity.twins(
        "net", linen=modules[0].Net, nnx=modules[1].Net, inputs=batch, loss=modules[0].loss, arguments=("x",)
    )
    (case,) = [case for case in pair.cases({}) if case.program == "grad"]
    program = run_case(case, Session(), ["program"]).channels["program"]
    assert bool(program.findings and program.findings[0].where == "flavour of nnx net") is borrowed
