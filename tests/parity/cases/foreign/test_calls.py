"""Ways to call foreign modules: methods, keywords, streams, meshes, no parameters; one call in a test."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

import parity

B, T, D, H, F = 4, 5, 12, 6, 3


class LinenTwo(linen.Module):
    shift: float = 0.0

    def setup(self):
        self.up, self.out = linen.Dense(H), linen.Dense(F)

    def encode(self, x, scale):
        return self.out(jnp.tanh(self.up(scale * x))) + self.shift


class NnxTwo(nnx.Module):
    def __init__(self, rngs, shift=0.0):
        self.up, self.out, self.shift = nnx.Linear(D, H, rngs=rngs), nnx.Linear(H, F, rngs=rngs), shift

    def embed(self, x, scale):
        return self.out(jnp.tanh(self.up(scale * x))) + self.shift


@pytest.mark.long
def test_methods_keywords_and_functions_of_the_mesh(cases_of, compare):
    seen = []

    def of_mesh(flavour):
        def make(mesh, **rngs):
            seen.append(mesh and (dict(mesh.shape), len(mesh.devices.flat)))
            return flavour(shift=0.0 if mesh is None else 1.0, **rngs)

        return make

    options = {
        "linen_options": {"scale": 3.0},
        "nnx_options": {"scale": 3.0},
        "method": ("encode", "embed"),
        "meshes": ("single", "data2-auto"),
    }
    found = compare(of_mesh(LinenTwo), of_mesh(NnxTwo), programs=("grad",), channels=("program",), **options)
    assert found.verdicts("program") == {"grad": "proved"}
    assert None in seen and ({"data": 2}, 2) in seen
    assert len(cases_of(LinenTwo, NnxTwo, programs=("grad",), **options)) == 2


class LinenNoisy(linen.Module):
    """Draws from the stream itself, so that both flavours can draw the same."""

    @linen.compact
    def __call__(self, x, deterministic):
        x = linen.Dense(F, name="out")(x)
        return x if deterministic else x + jax.random.normal(self.scope.rngs["noise"].rng, x.shape)


class NnxNoisy(nnx.Module):
    def __init__(self, rngs, stream="noise"):
        self.out, self.stream = nnx.Linear(D, F, rngs=rngs), stream

    def __call__(self, x, train, rngs=None):
        x = self.out(x)
        return x + jax.random.normal(rngs[self.stream].key[...], x.shape) if train else x


NOISY = {
    "rngs": ("dropout", "noise"),
    "linen_options": {"deterministic": False},
    "nnx_options": {"train": True},
    "programs": ("forward",),
    "channels": ("program", "values"),
}


@pytest.mark.long
def test_both_flavours_are_given_the_same_streams(compare):
    assert compare(LinenNoisy, NnxNoisy, **NOISY).verdicts("program") == {"forward": "proved"}
    wrong = compare(LinenNoisy, lambda rngs: NnxNoisy(rngs, "dropout"), **NOISY)
    assert wrong.verdicts("values") == {"forward": "failed"}


class LinenActs(linen.Module):
    def __call__(self, x):
        return jnp.tanh(x) * x


class NnxActs(nnx.Module):
    def __call__(self, x):
        return jnp.tanh(x) * x


def test_models_without_parameters_are_compared_by_the_gradients_of_their_inputs(compare):
    loss = lambda out, batch: jnp.mean(out**2)  # noqa: E731
    found = compare(LinenActs, lambda rngs: NnxActs(), programs=("forward", "grad"), loss=loss)
    found.assert_passed()
    assert "params" not in {row["role"] for row in found["grad"].rows("tree", "map")}
    assert found.verdicts("program") == {"forward": "proved", "grad": "proved"}


def test_a_loss_may_return_more_than_the_loss(compare):
    def loss(out, batch):
        return jnp.mean(out**2), {"total": out.sum()}

    found = compare(LinenActs, lambda rngs: NnxActs(), programs=("grad",), loss=loss, channels=("program",))
    assert found.verdicts("program") == {"grad": "proved"}


def test_training_a_model_without_parameters_is_an_error_with_the_next_step(compare):
    found = compare(LinenActs, lambda rngs: NnxActs(), channels=("program",))
    assert "no parameters to train; register it with programs=('forward', 'grad')" in found.text


class LinenCached(linen.Module):
    @linen.compact
    def __call__(self, x):
        cache = self.variable("cache", "seen", lambda: jnp.zeros((B, D)))
        cache.value += x.sum(1)
        return linen.Dense(F, name="out")(x + cache.value[:, None])


class NnxCached(nnx.Module):
    def __init__(self, rngs, decay=1.0):
        self.out, self.decay = nnx.Linear(D, F, rngs=rngs), decay
        self.seen = nnx.Cache(jnp.zeros((B, D)))

    def __call__(self, x):
        before = self.seen[...]
        self.seen[...] = self.decay * before + x.sum(1)
        return self.out(x + (before + x.sum(1))[:, None])


@pytest.mark.long
def test_forward_compares_the_collections_that_it_changes(compare):
    options = {"programs": ("forward",), "channels": ("program", "tree", "values", "state")}
    compare(LinenCached, NnxCached, **options).assert_passed()
    wrong = compare(LinenCached, lambda rngs: NnxCached(rngs, 0.5), **options)
    assert wrong.verdicts("state") == {"forward": "failed"} and wrong.verdicts("values") == {
        "forward": "bitwise"
    }


def test_programs_that_there_are_not(cases_of):
    with pytest.raises(
        ValueError, match=r"got programs \['eval'\], expected some of forward, grad, train_step"
    ):
        parity.twins("own", linen=LinenActs, nnx=NnxActs, inputs={}, loss=jnp.sum, programs=("eval",))


# --- in one call ---


@pytest.mark.long
def test_one_call_in_a_test():
    x = np.random.default_rng(0).normal(size=(B, T, D)).astype("float32")
    nnx_module = NnxTwo(nnx.Rngs(0))
    results = parity.assert_twins(
        LinenTwo(),
        nnx_module,
        {"x": x, "scale": np.float32(2)},
        method=("encode", "embed"),
        programs=("grad",),
    )
    assert [str(result.verdict) for result in results] == ["passed"]
    assert nnx_module.up.kernel.shape == (D, H)


@pytest.mark.slow
def test_one_call_names_the_difference():
    x = np.random.default_rng(0).normal(size=(B, T, D)).astype("float32")
    with pytest.raises(parity.TwinsDifferError, match="values failed") as raised:
        parity.assert_twins(
            LinenActs(),
            Shifted(),
            x,
            programs=("forward",),
            not_applicable={"memory": "not asked"},
        )
    assert isinstance(raised.value, AssertionError)
    assert "test_calls.py" in str(raised.value)
    assert str(raised.value.results[0].verdict) == "failed"


class Shifted(nnx.Module):
    def __call__(self, x):
        return jnp.tanh(x) * x + 1e-3
