"""The loop that docs/benchmark.md recommends trains like `nnx.jit`, and the plain script finds our twins equal."""

import functools
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

sys.path.insert(0, str(Path(__file__).parent))
import pages

LOOP = re.search(r"```python\n(.*?)```", (pages.ROOT / "docs" / "benchmark.md").read_text(), re.DOTALL)


def made():
    model = nnx.Sequential(nnx.Linear(3, 5, rngs=nnx.Rngs(0)), jnp.tanh, nnx.Linear(5, 2, rngs=nnx.Rngs(1)))
    return model, nnx.Optimizer(model, optax.adam(0.1), wrt=nnx.Param)


def train_step(model, optimizer, batch):
    loss, grads = nnx.value_and_grad(lambda model: jnp.mean((model(batch) - 1.0) ** 2))(model)
    optimizer.update(model, grads)
    return loss


@pytest.mark.long
def test_the_recommended_loop_trains_as_the_naive_one():
    assert LOOP
    batches = [np.random.default_rng(seed).normal(size=(4, 3)).astype("float32") for seed in range(3)]
    model, optimizer = made()
    exec(
        LOOP[1],
        {**globals(), "model": model, "optimizer": optimizer, "batches": batches, "functools": functools},
    )
    naive, other = made()
    for batch in batches:
        nnx.jit(train_step)(naive, other, batch)
    left, right = (jax.tree.leaves(nnx.state(pair)) for pair in ((model, optimizer), (naive, other)))
    assert int(optimizer.step[...]) == 3
    for one, another in zip(left, right, strict=True):
        np.testing.assert_allclose(one, another, rtol=1e-5)


@pytest.mark.long
def test_the_plain_script_finds_our_twins_the_same():
    script = pages.ROOT / "docs" / "examples" / "plain_comparison.py"
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, cwd=pages.ROOT, timeout=500
    )
    assert (done.returncode, done.stdout) == (0, "the same logits and gradients\n"), done.stderr[-2000:]
