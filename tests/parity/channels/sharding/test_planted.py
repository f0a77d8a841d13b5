"""Planted sharding bugs are caught, with the leaf or constraint and both specs in one finding; benign edits are not.

The letters are those of the bugs that real migrations shipped (E1 to E7).
"""

import dataclasses

import jax
import pytest

from parity.run.request import Request
from parity.run.run import case_runner

pytestmark = pytest.mark.slow

FSDP = "fsdp2.fsdp_transpose2.tensor2.data1"
CONTEXT = "data2.fsdp2.context2.expert1"
ZERO1 = "data2.fsdp2.tensor2"
RETURNED = "        return constrain(x_BTD, EMBEDDED, self.config.rules)"
RESHARDED = (
    "        return constrain(x_BTD, ('activation_batch', None, 'activation_embed'), self.config.rules)"
)
RESIDUAL = "        x_BTD = x_BTD + self.mlp_dropout(fed_BTD, deterministic, rngs)\n"
MOVED = RESIDUAL.replace("x_BTD + ", "").replace("        x_BTD =", "        y_BTD =")


def with_words(sentences, *words):
    """Returns the findings that have all the words."""
    return [sentence for sentence in sentences if all(word in sentence for word in words)]


def outcome(case):
    """Runs a case that crashes in tracing on the channels of the default run that come before values."""
    return case_runner(Request(channels=("program", "tree", "sharding")))(case)


# --- E1, E2: the resolver that both twins share; only Flax Linen's own detects an error ---

WALK = "    for index, rule in enumerate(rules):\n        axes = _check_rule"


@pytest.mark.long
@pytest.mark.parametrize("mode", ["auto", "explicit"])
def test_rules_as_a_dict_in_both_twins(mode, planted, seen):
    edit = WALK, WALK.replace("enumerate(rules)", "enumerate(dict(rules).items())")
    found = seen(planted(f"unroll/train_step@{FSDP}-{mode}", "shared/sharding.py", edit, both=True))
    assert found["tree"] == []
    for side in ("linen sharded-unroll params/decoder", "nnx sharded-unroll model/decoder"):
        assert with_words(
            found["sharding"],
            f"{side}/layers_0/attention/query/kernel",
            "P(('fsdp', 'fsdp_transpose'), 'tensor', None) by Flax Linen's resolver",
            "got P('fsdp_transpose', 'tensor', None) from axes ('embed', 'heads', 'head_dim')",
            "rule 23 ('embed', 'fsdp_transpose')",
        )


@pytest.mark.long
def test_rules_as_a_dict_change_nothing_if_no_name_has_two_usable_rules(planted, seen):
    """The mesh must trigger the bug: on ``data8`` every table resolves equally."""
    edit = WALK, WALK.replace("enumerate(rules)", "enumerate(dict(rules).items())")
    found = seen(planted("unroll/train_step@data8.tensor1-auto", "shared/sharding.py", edit, both=True))
    assert not with_words(found["sharding"], "by Flax Linen's resolver")


UNTRACKED = "        owner.update(dict.fromkeys(axes, dim))\n", ""


@pytest.mark.parametrize("both", [True, False])
def test_dimensions_resolved_one_by_one(both, planted):
    """JAX refuses the spec, so that nothing can be traced; the findings are still reported."""
    result = outcome(planted(f"scan/train_step@{FSDP}-auto", "shared/sharding.py", UNTRACKED, both=both))
    assert (result.verdict, str(result.channels["program"].verdict)) == ("failed", "error")
    assert "before" in result.channels["sharding"].detail
    assert "DuplicateSpecError" in result.channels["sharding"].detail
    assert with_words(
        [finding.sentence() for finding in result.channels["sharding"].findings],
        "decoder/layers/mlp/gate/kernel",
        "P('fsdp', None, ('fsdp_transpose', 'tensor'))",
        "P(('fsdp', 'fsdp_transpose'), None, ('fsdp_transpose', 'tensor'))",
        "by Flax Linen's resolver" if both else "bytes per device",
    )


# --- E4: the stacked axis without a name ---


@pytest.mark.parametrize("mode", ["auto", "explicit"])
def test_no_partition_name_on_the_stacked_axis(mode, planted):
    edit = ", transform_metadata={nnx.PARTITION_NAME: stack.axis}", ""
    result = outcome(planted(f"scan/train_step@{FSDP}-{mode}", "decoder.py", edit))
    assert result.verdict == "failed"
    for channel in ("tree", "sharding"):
        assert with_words(
            [finding.sentence() for finding in result.channels[channel].findings],
            "model/decoder/layers/mlp/down/kernel: reference logical axes ('mlp', 'layers', 'embed')",
            "candidate logical axes ('mlp', 'embed')",
        )
    assert "ShardingError" in result.channels["program"].findings[0].candidate


# --- E5: an axis of size one ---

KEPT = "        kept = tuple(axis for axis in axes if sizes[axis] > 1)\n", "        kept = axes\n"


@pytest.mark.long
def test_a_size_1_axis_kept_on_one_side_of_a_leaf(planted, seen):
    case = planted("unroll/train_step@fsdp4.tensor2.fsdp_transpose1-explicit", "shared/sharding.py", KEPT)
    assert with_words(
        seen(case)["sharding"],
        "model/decoder/layers_0/attention/query/kernel: reference P('fsdp', 'tensor', None) from axes",
        "candidate P(('fsdp', 'fsdp_transpose'), 'tensor', None) from axes",
    )


@pytest.mark.long
def test_a_size_1_axis_kept_on_one_side_of_a_constraint(planted, seen):
    case = planted("unroll/train_step@fsdp8.context1-explicit", "shared/sharding.py", KEPT)
    assert with_words(
        seen(case)["sharding"],
        "constraints on float32[8, 40, 48]: reference P('fsdp', None, None)",
        "candidate P('fsdp', 'context', None)",
    )


@pytest.mark.long
def test_a_size_1_axis_kept_on_both_sides(planted, seen):
    case = planted(
        "unroll/train_step@fsdp4.tensor2.fsdp_transpose1-explicit", "shared/sharding.py", KEPT, both=True
    )
    assert with_words(
        seen(case)["sharding"], "P('fsdp', 'tensor', None) by Flax Linen's resolver", "'fsdp_transpose'"
    )


# --- E6: a block that reshards ---


@pytest.mark.parametrize(("variant", "mode"), [("scan", "auto"), ("unroll", "explicit")])
def test_an_mlp_output_resharded_and_not_put_back(mode, variant, planted, seen):
    edit = (
        RESIDUAL + RETURNED,
        MOVED + RESHARDED.replace("return constrain(x_BTD", "return x_BTD + constrain(y_BTD"),
    )
    found = seen(planted(f"{variant}/train_step@{CONTEXT}-{mode}", "blocks.py", edit))
    assert with_words(
        found["sharding"],
        "constraints on float32[8, 40, 48]: reference P(('data', 'fsdp'), 'context', None)",
        "P(('data', 'fsdp'), None, None)",
        "an activation put elsewhere, or not put back",
    )


def test_a_block_that_returns_elsewhere_under_a_scan_with_types(planted):
    """The types of an explicit mesh refuse it; the report contains both types."""
    result = outcome(planted(f"scan/train_step@{CONTEXT}-explicit", "blocks.py", (RETURNED, RESHARDED)))
    assert result.verdict == "error"
    words = "40@context,48] but the corresponding output carry", "float32[8@(data,fsdp),40,48]"
    assert with_words([result.sentence()], *words), result.sentence()


# --- E7: the step outside the rules ---

PUT = "    if mode is ShardMode.EXPLICIT:\n        return jax.sharding.reshard(x, spec)\n"


@pytest.mark.long
def test_a_step_whose_constraints_are_all_no_ops(planted, seen):
    edit = PUT + "    return jax.lax.with_sharding_constraint(x, spec)\n", "    return x\n"
    found = seen(planted(f"unroll/train_step@{CONTEXT}-auto", "shared/sharding.py", edit))
    assert found["tree"] == []
    (sentence,) = with_words(found["sharding"], "sharding constraints, candidate 0 sharding constraints")
    assert "traced outside its mesh or rules" in sentence


@pytest.mark.parametrize("mesh", [f"{CONTEXT}-auto", f"{FSDP}-explicit"])
def test_a_step_most_of_whose_constraints_are_no_ops(mesh, planted, seen):
    edit = "    return x if target is None else _put(x, *target)\n", "    return x\n"
    found = seen(planted(f"scan/train_step@{mesh}", "shared/sharding.py", edit))
    assert with_words(
        found["sharding"],
        "constraints on float32[8, 40, 272]: reference P((",
        "candidate none",
        "traced outside its mesh or rules",
    )


def test_a_build_without_rules(ruled, seen):
    found = seen(ruled(f"unroll/train_step@{FSDP}-auto", "no-rules", lambda rules: ()))
    assert found["tree"] == []
    assert with_words(
        found["sharding"],
        "model/embedder/embedding: reference P('tensor', ('fsdp', 'fsdp_transpose')) from axes ('vocab', 'embed')",
        "candidate P(None, None) from axes ('vocab', 'embed')",
        "6,528 and 52,224 bytes per device",
        "no rule names 'vocab'",
    )
    assert with_words(found["sharding"], "constraints on float32[8, 40, 48]", "candidate P(None, None, None)")


# --- a size that does not divide, and axes in the wrong order ---


@pytest.mark.parametrize("mode", ["auto", "explicit"])
def test_a_vocabulary_that_its_axis_does_not_divide(mode, command):
    id = f"sharded-scan/train_step@fsdp4.tensor2.fsdp_transpose1-{mode}"
    ended = command("run", id, "--set", "vocab=271")
    assert ended.code == 1
    assert "Traceback" not in ended.out + ended.err
    findings = [line for line in ended.out.splitlines() if "ShardingError" in line]
    assert len(findings) == 1, ended.out
    words = (
        "embedder/embedding: dimension 0 ('vocab')",
        "P('tensor', 'fsdp')",
        "P(None, 'fsdp')",
        "pad it to 272",
    )
    assert with_words(findings, *words)
    ended = command("inspect", id, "--set", "vocab=271")
    assert ended.code == 2 and "pad it to 272" in ended.out and "pad it to 272" in ended.err


@pytest.mark.long
@pytest.mark.parametrize("mode", ["auto", "explicit"])
def test_two_axes_of_a_kernel_swapped(mode, planted, seen):
    found = seen(
        planted(f"unroll/train_step@{FSDP}-{mode}", "mlp.py", ('("mlp", "embed")', '("embed", "mlp")'))
    )
    leaf = "model/decoder/layers_0/mlp/down/kernel: reference"
    for channel in ("tree", "sharding"):
        assert with_words(
            found[channel], f"{leaf} logical axes ('mlp', 'embed'), candidate logical axes ('embed', 'mlp')"
        )
    assert with_words(
        found["sharding"],
        f"{leaf} P(('fsdp_transpose', 'tensor'), 'fsdp')",
        "candidate P('fsdp', ('fsdp_transpose', 'tensor'))",
    )


# --- ZeRO-1 on one side only ---

TO = "    grads, params = (to_moments(state.model.config, train, tree) for tree in (grads, params))\n", ""
FROM = (
    "    nnx.update(state.model, from_moments(state.model.config, train, nnx.state(state.model, nnx.Param)))\n",
    "",
)
SPECS = (
    "        zero1 = train.moments is MomentSharding.ZERO1 and isinstance(leaf, nnx.OptState)\n",
    "        zero1 = False\n",
)


@pytest.mark.long
@pytest.mark.parametrize("mode", ["auto", "explicit"])
def test_parameters_left_in_the_placement_of_moments(mode, planted, seen):
    found = seen(planted(f"unroll-zero1/train_step@{ZERO1}-{mode}", "train.py", FROM))
    assert with_words(found["sharding"], "constraints on float32[48, 80]: reference", "P('fsdp', 'tensor') ")


@pytest.mark.long
def test_gradients_left_in_the_placement_of_parameters(planted, seen):
    found = seen(planted(f"unroll-zero1/train_step@{ZERO1}-auto", "train.py", TO))
    assert with_words(
        found["sharding"], "constraints on float32[48, 80]: reference", "P(('fsdp', 'data'), 'tensor')"
    )


@pytest.mark.long
def test_gradients_left_in_the_placement_of_parameters_break_the_types(planted):
    result = outcome(planted(f"unroll-zero1/train_step@{ZERO1}-explicit", "train.py", TO))
    assert result.verdict == "error"
    assert with_words(
        [result.sentence()], "ShardingTypeError", "('fsdp', 'data')", "nnx sharded-unroll-zero1"
    )


@pytest.mark.long
@pytest.mark.parametrize("mode", ["auto", "explicit"])
def test_moments_left_in_the_placement_of_parameters(mode, planted, seen):
    found = seen(planted(f"unroll-zero1/train_step@{ZERO1}-{mode}", "train.py", SPECS))
    assert with_words(
        found["sharding"],
        "optimizer/opt_state/inner_state/1/0/mu/embedder/embedding: reference P(('tensor', 'data'), 'fsdp')",
        "candidate P('tensor', 'fsdp')",
        "6,528 and 13,056 bytes per device",
    )
    assert with_words(found["sharding"], "placed by the candidate at", "in state_specs.<locals>.spec")


# --- benign ---


def trimmed(spec):
    parts = list(spec)
    while parts and parts[-1] is None:
        parts.pop()
    return jax.sharding.PartitionSpec(*parts)


@pytest.mark.long
def test_a_trailing_none_in_a_spec_is_no_finding(real):
    case = real(f"scan/train_step@{FSDP}-explicit")

    def candidate():
        build = case.candidate()
        specs = lambda mesh: {path: trimmed(spec) for path, spec in build.specs(mesh).items()}  # noqa: E731
        assert specs(case.mesh.abstract()) != build.specs(case.mesh.abstract())
        return dataclasses.replace(build, name=f"{build.name} trimmed", specs=specs)

    assert outcome(dataclasses.replace(case, candidate=candidate)).verdict == "passed"


BENIGN = {
    "unused": lambda rules: (("nobody", "tensor"), *rules, ("no_one", ("fsdp", "tensor"))),
    "repeated": lambda rules: (*rules, *rules),
    "reordered": lambda rules: tuple(sorted(rules, key=lambda rule: rule[0] != "norm")),
}


@pytest.mark.long
@pytest.mark.parametrize("name", BENIGN)
def test_rules_that_resolve_equally_are_no_finding(name, ruled, seen):
    case = ruled(f"unroll/train_step@{FSDP}-explicit", name, BENIGN[name])
    rules = [side().rules for side in (case.reference, case.candidate)]
    assert rules[0] != rules[1]
    assert seen(case) == {"tree": [], "sharding": []}
