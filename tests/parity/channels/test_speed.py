"""The channel ``speed``: interleaved rounds, ratios, and only if a budget requires it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

import parity
from parity.cases.accepted import Budget, read_budgets
from parity.compare.backends.registry import find
from parity.compare.session import Session
from parity.compare.timing.rounds import ROUNDS, Paired, paired
from parity.gate.judge import _over_budget
from parity.run.record import CaseResult
from parity.run.run import run_case
from parity.verdicts import ChannelResult, Verdict

WIDE = 96


class Linen(linen.Module):
    @linen.compact
    def __call__(self, x):
        return jnp.tanh(linen.Dense(WIDE, name="dense")(x))


class Same(nnx.Module):
    def __init__(self, rngs):
        self.dense = nnx.Linear(WIDE, WIDE, rngs=rngs)

    def __call__(self, x):
        return jnp.tanh(self.dense(x))


class Rewritten(Same):
    """Computes equal numbers by different operations, which the prover does not pair."""

    def __call__(self, x):
        return jnp.tanh(jnp.einsum("io,bi->bo", self.dense.kernel[...].T.T, x) + self.dense.bias[...][None])


class Slow(Rewritten):
    """Adds work with a zero result: unrolled, so that compiling takes longer as well."""

    def __call__(self, x):
        waste = x
        for number in range(60):
            waste = jnp.sin(waste @ self.dense.kernel[...]) + number
        return super().__call__(x) + 0 * jnp.clip(waste, -1, 1)


def inputs(seed):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=(32, WIDE)).astype("float32") for name in ("x", "y")}


def loss(out, batch):
    return jnp.mean((out - batch["y"]) ** 2)


def case(model, **budgets):
    pair = parity.twins("net", linen=Linen, nnx=model, inputs=inputs, loss=loss)
    one = next(each for each in pair.cases({}) if each.program == "train_step")
    named = {f"speed.{name}": Budget(ratio=ratio, reason="a test") for name, ratio in budgets.items()}
    return one.with_accept(budgets=named)


def look(model, **budgets):
    return run_case(case(model, **budgets), Session(), ("speed",)).channels["speed"]


@pytest.mark.long
def test_a_candidate_that_takes_longer_is_named_with_both_times():
    result = look(Slow, compile=2.0, step=2.0)
    assert result.verdict is Verdict.FAILED, result.detail
    assert [finding.where for finding in result.findings] == ["time to compile", "time to step"]
    first = result.findings[0]
    assert first.reference.endswith(" ms") and first.distance.endswith("in 7 rounds), budget 2 x (a test)")
    assert result.measures["compile_ratio"] > 2 and result.measures["step_ratio"] > 2
    rows = {row["quantity"]: row["reference_seconds"] for row in result.tables["speed"]}
    assert all(isinstance(seconds, float) and 1e-5 < seconds < 10 for seconds in rows.values()), rows
    assert look(Slow, step=1e6).verdict is Verdict.EQUAL


def test_unbudgeted_and_proved_cases_are_not_timed():
    assert (look(Rewritten).verdict, look(Rewritten).detail) == (
        Verdict.SKIPPED,
        "no budget says how much slower it may be",
    )
    proved = run_case(case(Same, compile=1.0), Session(), ("program", "speed")).channels["speed"]
    assert (proved.verdict, proved.detail) == (Verdict.PROVED, "the same program")


@pytest.mark.long
def test_each_round_compiles_again_regardless_of_jax_caches(monkeypatch):
    backend, compiled = type(find("cpu")), []
    start = backend.start

    def started(self, lowered):
        compiled.append(lowered)
        return start(self, lowered)

    monkeypatch.setattr(backend, "start", started)
    look(Rewritten, compile=1e6)
    assert len(set(map(id, compiled))) == len(compiled) == 2 * (ROUNDS + 1)
    assert jax.config.jax_enable_compilation_cache  # pyright: ignore[reportAttributeAccessIssue]


def test_rounds_are_interleaved():
    order = []
    times = iter(range(1, 100))

    def timed(side):
        order.append(side)
        return float(next(times))

    found = paired((lambda: timed(0), lambda: timed(1)), rounds=3)
    assert order == [0, 1, 0, 1, 1, 0, 0, 1]
    assert found.values.shape == (3, 2)


def test_a_few_slow_rounds_do_not_count():
    seconds = np.ones((8, 2))
    seconds[:2, 1] = 9
    assert (Paired(seconds).low, Paired(seconds).middle) == (1.0, 1.0)
    seconds[:7, 1] = 9
    assert Paired(seconds).low == 9


def test_a_budget_of_time_is_a_ratio():
    assert (
        read_budgets({"speed": {"step": {"ratio": 1.1, "reason": "new kernel"}}})["speed.step"].ratio == 1.1
    )
    with pytest.raises(ValueError, match=r"budgets\.speed\.step: got slack = 3, expected ratio, reason"):
        read_budgets({"speed": {"step": {"slack": 3, "reason": "new kernel"}}})
    with pytest.raises(ValueError, match="expected one of compile, step"):
        read_budgets({"speed": {"first_step": {"ratio": 1.1, "reason": "new kernel"}}})


def judged(program="unproved", speed="skipped", rows=()):
    channels = {
        "speed": ChannelResult(name="speed", verdict=Verdict(speed), tables={"speed": rows}),
        "program": ChannelResult(name="program", verdict=Verdict(program)),
    }
    return CaseResult(
        id="a", program="grad", mesh="single", backend="cpu", verdict="passed", channels=channels, seconds={}
    )


def test_a_flip_holds_the_timings():
    row = {"quantity": "step", "ratio": 1.4, "low": 1.3}
    for ratio, held in ((1.2, ["speed.step: 1.00 -> 1.30, budget 1.2 x (a test)"]), (1.35, [])):
        budgets = {"speed.step": Budget(ratio=ratio, reason="a test")}
        assert list(_over_budget(budgets, judged(speed="equal", rows=[row]))) == held
    (held,) = _over_budget(budgets, judged())
    assert held.endswith("set budgets.speed.step for the project too, and run the case again")
    assert not list(_over_budget(budgets, judged(program="proved")))
