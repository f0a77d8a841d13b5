"""The first line names the call behind a difference: what passes an input, a key, a weight, or another value."""

import functools
import types

import jax
import numpy as np
import pytest
from flax import linen, nnx

import parity
from parity.compare.origin import operation
from parity.compare.origin.divergence import Divergence
from parity.compare.origin.result import SearchResult
from parity.compare.session import Session
from parity.run.run import run_case
from parity.verdicts import Finding


def batch(seed):
    rng = np.random.default_rng(seed)
    return {"x": rng.normal(size=(4, 5)).astype("float32"), "gate": rng.normal(size=(4, 1)).astype("float32")}


def case_of(reference, candidate, arguments=("x",), program="forward"):
    pair = parity.twins(
        "two",
        linen=reference,
        nnx=candidate,
        inputs=batch,
        arguments=arguments,
        loss=lambda out, batch: out.sum(),
        programs=(program,),
    )
    return pair.cases({})[0]


def first_line(*given):
    result = run_case(case_of(*given), Session())
    assert result.explanation is not None
    return result.explanation.line


def unsure(finding):
    """A search by values that is not sure of its finding."""
    facts = {"doubt": "because of others"}
    return SearchResult(axis="op", sentence="", found=False, finding=finding, facts=facts)


def timed(function):
    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapped


@timed
def gated(h, given):
    return h if given is None else h * given


class Gated(linen.Module):
    @linen.compact
    def __call__(self, x, gate):
        return gated(linen.Dense(6, name="first")(x), gate)


class Ungated(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(5, 6, rngs=rngs)

    def __call__(self, x, gate):
        return gated(self.first(x), None)


class GateLost(Ungated):
    def __call__(self, x, gate):
        return self.after(self.first(x), gate)

    def after(self, h, given):
        return gated(h, None)


@pytest.mark.parametrize(
    ("candidate", "place", "inner"),
    [(Ungated, " in Gated.__call__; ", 0), (GateLost, " in gated, called at ", 1)],
)
def test_an_input_that_one_side_leaves_out_is_placed_where_the_other_passes_it(
    monkeypatch, candidate, place, inner
):
    elsewhere = Finding(where="add", reference="a.py:1 in a", candidate="b.py:2 in b")
    monkeypatch.setattr(operation, "locate", lambda *given: unsure(elsewhere))
    found = first_line(Gated, candidate, ("x", "gate"))
    assert found.startswith("program differs: input gate (only the reference reads it): reference "), found
    assert place in found and found.count(" in gated") == inner and "not sure" not in found, found


def test_a_value_that_one_side_is_given_is_placed_at_its_first_use():
    users = {3: [8, 5]}
    alignment = types.SimpleNamespace(users=lambda side, at: users.get(at, []))
    for at, used in ((3, 5), (4, 4)):
        given = Divergence(alignment, (None, at), 0)  # pyright: ignore[reportArgumentType]
        assert operation._at_use(given).ends == (None, used)


class Exact(linen.Module):
    @linen.compact
    def __call__(self, x):
        return jax.nn.gelu(linen.Dense(6, name="first")(x), approximate=False)


class Approximate(Ungated):
    def __call__(self, x):
        return jax.nn.gelu(self.first(x))


@pytest.mark.parametrize("agrees", [True, False])
def test_a_place_that_the_proof_and_an_unsure_search_name_is_sure(monkeypatch, agrees):
    (first, *_) = run_case(case_of(Exact, Approximate), Session(), ("program",)).channels["program"].findings
    elsewhere = Finding(where="add", reference="a.py:1 in a", candidate="b.py:2 in b")
    monkeypatch.setattr(operation, "locate", lambda *given: unsure(first if agrees else elsewhere))
    found = first_line(Exact, Approximate)
    assert ("not sure" not in found) is agrees, found
