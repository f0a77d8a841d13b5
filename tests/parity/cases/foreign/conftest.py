"""Shared fixtures of the foreign pairs: a batch, a loss, and a run that returns the result of every channel."""

import dataclasses
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import parity
from parity.channels import ALL
from parity.report.table import findings_text
from parity.run.request import Request
from parity.run.run import CaseResult, case_runner

sys.path.append(str(Path(__file__).parent))  # the package flax_layers

# B batch, T position, D in, F out
B, T, D, F = 4, 5, 12, 3


def inputs(seed):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=(B, T, size)).astype("float32") for name, size in (("x", D), ("y", F))}


def loss(out, batch):
    return jnp.mean((out - batch["y"]) ** 2)


@dataclasses.dataclass
class Found:
    """The results of a pair by program."""

    results: dict[str, CaseResult]

    def __getitem__(self, program) -> CaseResult:
        return self.results[program]

    @property
    def text(self) -> str:
        return "\n".join(findings_text(result) for result in self.results.values())

    def assert_passed(self):
        verdicts = {name: str(result.verdict) for name, result in self.results.items()}
        assert verdicts == dict.fromkeys(verdicts, "passed"), self.text

    def verdicts(self, channel):
        return {name: str(result.channels[channel].verdict) for name, result in self.results.items()}

    def notes(self, channel):
        return [
            note.sentence() for result in self.results.values() for note in result.channels[channel].notes
        ]


@pytest.fixture(scope="session")
def cases_of():
    """``cases_of(linen, nnx, programs=("grad",), ...)`` gives some cases of a pair."""

    def cases(linen, nnx, programs=("train_step",), **options):
        pair = parity.twins("own", linen=linen, nnx=nnx, **{"inputs": inputs, "loss": loss, **options})
        found = [case for case in pair.cases({}) if case.program in programs]
        assert found, [case.program for case in pair.cases({})]
        return found

    return cases


@pytest.fixture(scope="session")
def compare(cases_of):
    """``compare(linen, nnx, programs=("grad",), channels=..., ...)`` runs some programs of a pair."""

    def run(linen, nnx, channels=ALL, **options):
        results = map(case_runner(Request(channels=channels)), cases_of(linen, nnx, **options))
        return Found({result.program: result for result in results})

    return run
