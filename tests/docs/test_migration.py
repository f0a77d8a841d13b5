"""The examples of the migration page are twins."""

import re
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx

import parity

sys.path.insert(0, str(Path(__file__).parent))
import pages

TITLE = re.compile(r'title="(\w+)/(linen|nnx)"')
PRELUDE = "import jax\nimport jax.numpy as jnp\nfrom flax import linen, nnx\n"
OPTIONS = {"tied": {"zero_gradients": ("*frozen*",)}}


def examples() -> dict[str, dict[str, str]]:
    found = {}
    for fence in pages.fences(pages.ROOT / "docs" / "migration.md"):
        if title := TITLE.search(fence.info):
            found.setdefault(title[1], {})[title[2]] = fence.text
    return found


@pytest.fixture
def sides(tmp_path, monkeypatch):
    """The two classes of an example, written to separate files and imported."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(name, change=lambda text: text):
        for flavour, text in examples()[name].items():
            text = change(text) if flavour == "nnx" else text
            (tmp_path / f"{name}_{flavour}.py").write_text(PRELUDE + text)
        linen, reference = (__import__(f"{name}_{flavour}") for flavour in ("linen", "nnx"))
        for module in (linen, reference):
            del sys.modules[module.__name__]
        return linen.Linen(), reference.Nnx(rngs=nnx.Rngs(0))

    return make


def batch():  # a residual of the loop is larger than the memory that two programs may differ by
    return np.random.default_rng(7).normal(size=(8, 12, 16)).astype(np.float32)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(examples()))
def test_an_example_is_a_pair_of_twins(name, sides):
    with jax.numpy_rank_promotion("allow"):  # a user's own setting
        results = parity.assert_twins(*sides(name), batch(), **OPTIONS.get(name, {}))
    assert {result.channels["program"].verdict for result in results} == {parity.Verdict.PROVED}


def test_there_are_examples():
    assert len(examples()) >= 6 and all(set(sides) == {"linen", "nnx"} for sides in examples().values())


DRIFTS = """self.mean.set_value(
            (0.9 * self.mean[...] + 0.1 * jnp.mean(y, axis=(0, 1))).astype(jnp.bfloat16)
        )"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "right", "wrong", "channel", "word"),
    [
        ("modules", "self.scale = nnx.Param(", "self.scale = nnx.Variable(", "tree", "model/scale"),
        ("modules", "jnp.tanh(", "jax.nn.gelu(", "values", "outputs"),
        (
            "scan",
            "merge(graphdef, params)(x), prev",
            "merge(graphdef, params)(x), params), prev",
            "loops",
            "returns its parameters",
        ),
        ("scan", "jax.checkpoint(lambda", "(lambda f, **_: f)(lambda", "memory", "temp bytes"),
        (
            "statistics",
            "nnx.BatchNorm(16,",
            "nnx.BatchNorm(16, momentum=0.9,",
            "state",
            "batch_stats/norm/mean",
        ),
        (
            "statistics",
            "nnx.BatchNorm(16,",
            "nnx.BatchNorm(16, use_running_average=True,",
            "values",
            "outputs",
        ),
        ("buffer", "class Average(nnx.Variable)", "class Average(nnx.Param)", "tree", "mean"),
        ("buffer", "self.mean[...] = ", "_ = ", "state", "averages/mean"),
        (
            "buffer",
            "self.mean[...] = 0.9 * self.mean[...] + 0.1 * jnp.mean(y, axis=(0, 1))",
            DRIFTS,
            "retrace",
            "bfloat16",
        ),
        ("tied", "jax.lax.stop_gradient(self.frozen[...])", "self.frozen[...]", "gradients", "params/frozen"),
        (
            "tied",
            "jnp.tanh(self.dense(",
            "jnp.tanh(nnx.Linear(16, 16, rngs=nnx.Rngs(1))(",
            "values",
            "outputs",
        ),
        ("axes", '("embed", "mlp")', '("mlp", "embed")', "sharding", "kernel"),
        ("axes", 'out_sharding=("embed", "mlp"), ', "", "sharding", "kernel"),
    ],
)
def test_bugs_are_caught_by_the_channels_that_the_page_names(name, right, wrong, channel, word, sides):
    def plant(text):
        if channel == "loops":  # the body returns its parameters from the checkpoint
            text = text.replace("lambda x, params: nnx", "lambda x, params: (nnx")
            text = text.replace("(apply(x, params), None)", "apply(x, params)")
        assert right in text
        return text.replace(right, wrong)

    with jax.numpy_rank_promotion("allow"), pytest.raises(parity.TwinsDifferError) as raised:
        parity.assert_twins(*sides(name, plant), batch(), **OPTIONS.get(name, {}))
    blocking = {one.name for result in raised.value.results for one in result.blocking}
    assert channel in blocking and word in str(raised.value)
    assert f"`{channel}`" in page_of(name)


def page_of(name: str) -> str:
    """The part of the page that has the example, to the next heading."""
    text = (pages.ROOT / "docs" / "migration.md").read_text()
    start = text.index(f'title="{name}/linen"')
    return text[start : text.find("\n## ", start)]
