"""Flag-liveness and ablation: names flags that a twin ignores, and the flags that a difference depends on."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name

from models_nnx.shared.config import PipelineConfig, TrainConfig
from models_nnx.shared.presets import preset, tiny
from parity.bisect.report import bisect_case
from parity.builds.build import linen_build
from parity.cases.case import Case, Explore, Flag
from parity.channels.flags import flags
from parity.compare.evidence import Evidence
from parity.compare.session import Session
from parity.matrix.flags import FLAGS, PIPELINE
from parity.run.run import run_case
from parity.verdicts import Verdict

B, D, L = 4, 6, 5
BASE = {"remat": "none", "unroll": "1", "names": "", "dropout": "0", "rate": "1.0"}
POLICIES = jax.checkpoint_policies


def layer(w, x, tag="hidden"):
    return jnp.tanh(checkpoint_name(x @ w, tag))


def loss(w, x, settings, tag="hidden"):
    policies = {"full": None, "save_named": POLICIES.save_only_these_names(*settings["names"].split(","))}
    body = functools.partial(layer, tag=tag)
    if settings["remat"] != "none":
        body = jax.checkpoint(body, policy=policies[settings["remat"]], prevent_cse=False)
    unroll = int(settings["unroll"])
    x, _ = jax.lax.scan(lambda x, _: (body(w, x), None), x, None, length=L, unroll=unroll)
    return x.sum() * float(settings["rate"])


def build(name, settings, bug):
    heard = {**settings, **{setting: BASE[setting] for setting in bug.get("deaf", ())}}
    heard |= bug.get("hears", {}).get(settings["remat"], {})

    def grad(state, inputs):
        scaled = functools.partial(loss, settings=heard, tag=bug.get("tag", "hidden"))
        return {"gradients": {"params": {"w": jax.grad(scaled)(state["params"]["w"], inputs["x"])}}}

    words = ",".join(f"{setting}={text}" for setting, text in settings.items())
    return linen_build(
        f"{name} {words}",
        lambda key: {"params": {"w": jax.random.normal(key, (D, D))}},
        {"grad": (grad, {})},
        inputs=lambda seed: {"x": np.random.default_rng(seed).standard_normal((B, D), np.float32)},
        specs=lambda tree, mesh: {},
        input_specs=lambda leaves, mesh: {},
    )


def case(given, settings=(), reference=(), candidate=()):
    chosen = BASE | dict(settings)
    return Case(
        id="toy/grad@single",
        reference=lambda: build("linen", chosen, dict(reference)),
        candidate=lambda: build("nnx", chosen, dict(candidate)),
        program="grad",
        explore=Explore(
            flags=given,
            with_settings=lambda settings: case(given, {**chosen, **settings}, reference, candidate),
        ),
    )


FULL = Flag(name="remat=full", on={"remat": "full"})
NAMED = Flag(
    name="names=hidden", on={"remat": "save_named", "names": "hidden"}, off={"remat": "full", "names": ""}
)
UNROLL = Flag(name="unroll=5", on={"unroll": "5"})


def outcome(*given, **bugs):
    return flags.look(Evidence.of(case(given, **bugs), Session()))


def words(result):
    return [
        (finding.where, finding.reference, finding.candidate, finding.cause) for finding in result.findings
    ]


@pytest.mark.long
def test_live_flags_pass_and_are_listed():
    result = outcome(FULL, NAMED, UNROLL)
    assert (result.verdict, result.findings) == (Verdict.EQUAL, ())
    assert result.detail == "3 of 3 flags are live on both sides: remat=full, names=hidden, unroll=5"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flag", "bug"),
    [
        (FULL, {"hears": {"full": {"remat": "none"}}}),
        (UNROLL, {"deaf": ("unroll",)}),
        (NAMED, {"tag": "renamed"}),
    ],
    ids=["policy full means none", "dead unroll flag", "renamed checkpoint name"],
)
@pytest.mark.parametrize("side", ["reference", "candidate"])
def test_a_flag_that_one_side_ignores_is_named(flag, bug, side):
    (found,) = words(outcome(flag, UNROLL if flag is FULL else FULL, **{side: bug}))
    texts = {"reference": "changes", "candidate": "changes", side: "stays the same program"}
    cause = f"the {side} does not honour the flag, or reads it where it has no effect"
    assert found == (f"flag {flag.name}", texts["reference"], texts["candidate"], cause)


@pytest.mark.slow
def test_a_flag_that_no_side_honours_is_named():
    bug = {"deaf": ("unroll",)}
    (found,) = words(outcome(UNROLL, reference=bug, candidate=bug))
    assert found[:3] == ("flag unroll=5", "stays the same program", "stays the same program")
    assert found[3] == "no side honours the flag, though it is declared to be live"


@pytest.mark.slow
def test_a_flag_that_means_two_things_is_named():
    doubled = {"hears": {"full": {"rate": "2.0"}}}
    (found,) = words(outcome(FULL, candidate=doubled))
    assert found[2:] == (
        "changes (both change, but not into the same program)",
        "the flag means something else on the two sides",
    )


def test_a_case_without_flags_is_skipped_and_flags_need_vary():
    assert outcome().verdict is Verdict.SKIPPED
    with pytest.raises(ValueError, match="expected `with_settings`, which makes"):
        flags.look(Evidence.of(case((FULL,)).with_explore(with_settings=None), Session()))


SIZES = {
    *("vocab", "embed", "layers", "mlp.hidden", "moe.experts", "moe.hidden", "moe.shared_hidden"),
    *("attention.heads", "attention.kv_heads", "attention.head_dim"),
    *("pipeline.stages", "pipeline.microbatches", "pipeline.repeats"),
    *("pipeline.layers_per_stage", "pipeline.layers_outside"),
}
NO_TEXT = {"rules", "attention.cycle", "attention.rope_scaling", "attention.latent"}
ELSEWHERE = {
    "train.moments": "lies elsewhere only on a mesh: the pair `sharded`",
    "moe.weighting": "cases of mixtral and gpt-oss",
    "moe.groups": "bound to the number of experts",
    "moe.top_groups": "bound to the number of groups",
    "moe.bias_rate": "read by the step only: the cases of deepseek3",
    "moe.activation": "cases of gpt-oss",
}


def fields(config, prefix=""):
    """Yields the names of all settings of a config, including those of its parts that are set."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value) and prefix + field.name not in NO_TEXT:
            yield from fields(value, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name


def test_every_option_of_the_configs_is_varied_or_excused():
    configs = [tiny(preset(name)) for name in {name for name, _, _ in FLAGS}]
    options = {
        name for config in configs for name in fields(config) if name not in ("mlp", "moe", "mtp", "pipeline")
    }
    options |= set(fields(TrainConfig(), "train."))
    options |= set(fields(PipelineConfig(stages=2, microbatches=2), "pipeline."))
    declared = {flag.name.partition("=")[0] for flags in (*FLAGS.values(), PIPELINE) for flag in flags}
    missing = options - declared - SIZES - NO_TEXT - set(ELSEWHERE)
    assert not missing, f"add flags to parity/matrix/flags.py, or a reason here: {sorted(missing)}"
    assert declared <= options, sorted(declared - options)


# --- explanation by ablation ---

MEANS_NONE = {"hears": {"full": {"remat": "none"}}}
ABLATIONS = ({"dropout": "1"}, {"rate": "2.0"}, {"remat": "none"})


@pytest.mark.long
@pytest.mark.parametrize(
    ("ablations", "message"),
    [
        (ABLATIONS, "passes with remat=none on both sides"),
        (({"rate": "2.0"},), "fails under the plainest configuration too"),
        ((), "the case has no settings to change"),
    ],
)
def test_the_setting_that_a_difference_in_structure_needs_is_searched_by_bisect(ablations, message):
    broken = case((), {"remat": "full"}, candidate=MEANS_NONE).with_explore(ablations=ablations)
    result = run_case(broken, Session(), ("loops",))
    report = bisect_case(broken, ("config",), result=result)
    assert report.signature and report.signature.channel == "loops"
    assert message in report.axes[0].sentence
