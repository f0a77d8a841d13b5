"""Initial states: compiled, or made operation by operation if many leaves share each type."""

import jax
import numpy as np
import pytest
from flax import linen, nnx

import parity
from parity.compare.clock import Clock
from parity.compare.evidence import Evidence
from parity.compare.session import Session
from parity.compare.start import Start

NORMAL = jax.nn.initializers.normal()


class Linen(linen.Module):
    count: int

    @linen.compact
    def __call__(self, x):
        return sum((self.param(f"w{number}", NORMAL, (3,)) for number in range(self.count)), start=x)


class Nnx(nnx.Module):
    def __init__(self, count, rngs):
        for number in range(count):
            setattr(self, f"w{number}", nnx.Param(NORMAL(rngs.params(), (3,))))
        self.count = count

    def __call__(self, x):
        return sum((getattr(self, f"w{number}")[...] for number in range(self.count)), start=x)


class OnHost(Linen):
    """Its parameters are drawn by NumPy."""

    @linen.compact
    def __call__(self, x):
        def drawn(key, shape):
            made = jax.ShapeDtypeStruct(shape, np.float32)
            return jax.pure_callback(lambda key: np.resize(key, shape).astype(np.float32), made, key)

        return sum((self.param(f"w{number}", drawn, (3,)) for number in range(self.count)), start=x)


def wide(count, linen=Linen):
    """Returns the Linen build of a pair with as many leaves of one type."""
    pair = parity.twins(
        "wide",
        linen=linen(count),
        nnx=lambda rngs: Nnx(count, rngs),
        inputs=lambda seed: {"x": np.ones(3, np.float32)},
        loss=lambda out, batch: out.sum(),
        programs=("forward",),
    )
    return Evidence.of(pair.cases({})[0], Session()).builds[0]


@pytest.mark.long
@pytest.mark.parametrize(("count", "compiled"), [(4, True), (60, False)])
def test_a_state_of_many_leaves_of_a_type_is_the_one_that_the_compiled_program_makes(
    monkeypatch, count, compiled
):
    build = wide(count)
    expected = Start(build, Clock()).compile()(jax.random.key(3))
    calls = []
    monkeypatch.setattr(Start, "compile", lambda self: calls.append(self) or (lambda key: expected))
    found = Start(build, Clock()).creator()(jax.random.key(3))
    assert bool(calls) == compiled
    assert sorted(found) == sorted(expected)
    for path, leaf in expected.items():
        assert found[path].dtype == leaf.dtype
        if not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            np.testing.assert_allclose(found[path], leaf, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("count", "linen"), [(4, Linen), (24, Linen), (24, OnHost)])
def test_leaves_of_many_keys_are_those_of_each_key(count, linen):
    start = Start(wide(count, linen), Clock())
    paths = [path for path in start.build.leaves if path.startswith("params/")]
    assert len(paths) == count and start.shares_types(paths[1:]) == (count > 4)
    some, each = start.of_keys(paths[1:])(jax.vmap(jax.random.key)(np.arange(3))), start.creator()
    assert set(some) == set(paths[1:])
    for row in range(3):
        one = each(jax.random.key(row))
        for path, leaf in some.items():
            np.testing.assert_allclose(leaf[row], one[path], rtol=1e-5, atol=1e-7)
