"""A user's twins: the documented example from another folder, and features that real models need in addition."""

import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

import parity
from parity.builds.weights.transforms import Split
from parity.report.table import findings_text
from parity.run.request import Request
from parity.run.run import case_runner

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "foreign_mlp.py"
PROGRAMS = ["forward", "grad", "train_step"]

# B batch, T position, D in, H hidden, F out, L layers
B, T, D, H, F, L = 8, 5, 12, 6, 4, 3


def inputs(seed):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=(B, T, size)).astype("float32") for name, size in (("x", D), ("y", F))}


def loss(out, batch):
    return jnp.mean((out - batch["y"]) ** 2)


def results(linen_module, nnx_module, **options):
    """Runs all cases of a pair and returns ``{program@mesh: result}``."""
    pair = parity.twins(
        "own", linen=linen_module, nnx=nnx_module, **{"inputs": inputs, "loss": loss, **options}
    )
    return {result.id.partition("/")[2]: result for result in map(case_runner(Request()), pair.cases({}))}


def assert_passed(found):
    assert {name: str(result.verdict) for name, result in found.items()} == dict.fromkeys(found, "passed"), (
        "\n".join(findings_text(result) for result in found.values())
    )


def rungs(found, channel):
    return {
        name.partition("@")[0]: str(result.channels[channel].verdict)
        for name, result in found.items()
        if result.channels[channel].verdict != "skipped"
    }


# --- the example of the documentation ---


@pytest.fixture
def project(tmp_path):
    """A folder with the example and two lines of settings."""
    shutil.copy(EXAMPLE, tmp_path / "my_twins.py")
    (tmp_path / "pyproject.toml").write_text('[tool.parity]\npairs = ["my_twins:PAIR"]\n')
    return tmp_path


def test_the_example_is_short():
    code = [line for line in EXAMPLE.read_text().splitlines() if line and not line.startswith('"""')]
    assert len(code) < 30


@pytest.mark.long
def test_the_example_runs_from_another_folder_with_the_package_installed(project, shell):
    ended = shell("run", "--json", "report.json", cwd=project)
    assert (ended.code, ended.err) == (0, "")
    report = json.loads((project / "report.json").read_text())
    assert [case["id"] for case in report["cases"]] == [f"mlp/{program}@single" for program in PROGRAMS]
    assert {case["verdict"] for case in report["cases"]} == {"passed"}
    assert report["cases"][0]["reference"] == "linen mlp" and report["cases"][0]["candidate"] == "nnx mlp"


@pytest.mark.long
def test_the_example_with_another_activation_exits_1_and_names_leaves(project, shell):
    source = project / "my_twins.py"
    source.write_text(source.read_text().replace("jax.nn.gelu(self.up", "jax.nn.silu(self.up"))
    ended = shell("run", "--json", "report.json", cwd=project)
    assert ended.code == 1
    cases = json.loads((project / "report.json").read_text())["cases"]
    assert {case["verdict"] for case in cases} == {"failed"}
    found = {
        name: " ".join(finding["where"] for finding in channel["findings"])
        for case in cases
        for name, channel in case["channels"].items()
        if channel["verdict"] == "failed"
    }
    assert "outputs[" in found["values"] or "loss" in found["values"]
    assert "params/up/kernel[" in found["gradients"] and "step3/params/down/kernel[" in found["state"]
    assert "outputs[" in ended.out and "my_twins.py" in ended.out


# --- weight rules ---


class LinenFused(linen.Module):
    @linen.compact
    def __call__(self, x):
        query, key, value = jnp.split(linen.Dense(3 * H, name="qkv")(x), 3, axis=-1)
        return linen.Dense(F, name="out")(linen.dot_product_attention(query, key, value))


class NnxSplit(nnx.Module):
    def __init__(self, rngs, order=("query", "key", "value")):
        self.query, self.key, self.value = (nnx.Linear(D, H, rngs=rngs) for _ in range(3))
        self.out = nnx.Linear(H, F, rngs=rngs)
        self.order = order

    def __call__(self, x):
        parts = [getattr(self, name)(x) for name in self.order]
        return self.out(linen.dot_product_attention(*parts))


FUSED = [
    parity.Rule(
        reference=(rf"(.*)qkv/{leaf}",),
        candidate=tuple(rf"\1{name}/{leaf}" for name in ("query", "key", "value")),
        transform=Split(axis=axis, sizes=(H, H, H)),
    )
    for leaf, axis in (("kernel", 1), ("bias", 0))
]


@pytest.mark.long
def test_weight_rules_pair_a_fused_kernel_with_its_parts():
    found = results(
        LinenFused, NnxSplit, weight_rules=FUSED, not_applicable={"memory": "one side fuses three kernels"}
    )
    assert_passed(found)


@pytest.mark.long
def test_a_rule_that_pairs_the_wrong_parts_fails():
    found = results(LinenFused, lambda rngs: NnxSplit(rngs, ("key", "query", "value")), weight_rules=FUSED)
    assert {str(result.verdict) for result in found.values()} == {"failed"}
    assert "failed" in rungs(found, "values").values()


def test_without_rules_the_leftovers_of_both_sides_are_listed():
    tree = results(LinenFused, NnxSplit)["forward@single"].channels["tree"]
    left = {finding.where: (finding.reference, finding.candidate) for finding in tree.findings}
    assert left["params/qkv/kernel"] == ("float32[12, 18]", "no such leaf")
    assert left["model/query/kernel"] == ("no such leaf", "float32[12, 6]")


# --- state that no gradient touches ---


class LinenNormed(linen.Module):
    @linen.compact
    def __call__(self, x):
        x = linen.BatchNorm(use_running_average=False, momentum=0.9, name="norm")(x)
        return linen.Dense(F, name="out")(x)


class NnxNormed(nnx.Module):
    def __init__(self, rngs, momentum=0.9):
        self.norm = nnx.BatchNorm(D, use_running_average=False, momentum=momentum, rngs=rngs)
        self.out = nnx.Linear(D, F, rngs=rngs)

    def __call__(self, x):
        return self.out(self.norm(x))


@pytest.mark.long
def test_batch_statistics_are_state():
    found = results(LinenNormed, NnxNormed)
    assert_passed(found)


@pytest.mark.long
def test_another_momentum_of_the_statistics_fails_the_state_alone():
    found = results(LinenNormed, lambda rngs: NnxNormed(rngs, momentum=0.8))
    verdicts = {name: str(result.verdict) for name, result in found.items()}
    # `forward` returns the statistics it changed, so they fail there as well.
    assert verdicts == {"forward@single": "failed", "grad@single": "passed", "train_step@single": "failed"}
    assert "step1/batch_stats/norm/mean[" in findings_text(found["train_step@single"])


# --- a scanned stack ---


class LinenLayer(linen.Module):
    @linen.compact
    def __call__(self, x, _):
        return x + jnp.tanh(linen.Dense(D, name="dense")(x)), None


class LinenStack(linen.Module):
    @linen.compact
    def __call__(self, x):
        scan = linen.scan(LinenLayer, variable_axes={"params": 0}, split_rngs={"params": True}, length=L)
        x, _ = scan(name="layers")(x, None)
        return linen.Dense(F, name="out")(x)


class NnxStack(nnx.Module):
    def __init__(self, rngs, reverse=False):
        @nnx.split_rngs(splits=L)
        @nnx.vmap(in_axes=0)
        def create(rngs):
            return NnxLayer(rngs)

        self.layers, self.out, self.reverse = create(rngs), nnx.Linear(D, F, rngs=rngs), reverse

    def __call__(self, x):
        graphdef, params = nnx.split(self.layers)
        x, _ = jax.lax.scan(
            lambda x, params: (nnx.merge(graphdef, params)(x), None), x, params, reverse=self.reverse
        )
        return self.out(x)


class NnxLayer(nnx.Module):
    def __init__(self, rngs):
        self.dense = nnx.Linear(D, D, rngs=rngs)

    def __call__(self, x):
        return x + jnp.tanh(self.dense(x))


@pytest.mark.long
def test_a_scanned_stack():
    found = results(LinenStack, NnxStack)
    assert_passed(found)
    assert found["grad@single"].channels["loops"].detail.startswith("lowered 2")


@pytest.mark.long
def test_a_stack_that_runs_from_the_last_layer_fails():
    found = results(LinenStack, lambda rngs: NnxStack(rngs, reverse=True))
    assert {str(result.verdict) for result in found.values()} == {"failed"}


# --- logical axes on a mesh ---

RULES = (("in", "data"), ("hidden", "tensor"), ("batch", "data"))
MESHES = ("single", "data2.tensor2-auto")


class LinenSharded(linen.Module):
    @linen.compact
    def __call__(self, x):
        init = linen.with_logical_partitioning(linen.initializers.lecun_normal(), ("in", "hidden"))
        return linen.Dense(F, name="out")(jnp.tanh(linen.Dense(H, kernel_init=init, name="up")(x)))


class NnxSharded(nnx.Module):
    def __init__(self, rngs, axes=("in", "hidden")):
        init = nnx.with_metadata(nnx.initializers.lecun_normal(), out_sharding=axes, eager_sharding=False)
        self.up, self.out = nnx.Linear(D, H, kernel_init=init, rngs=rngs), nnx.Linear(H, F, rngs=rngs)

    def __call__(self, x):
        return self.out(jnp.tanh(self.up(x)))


@pytest.mark.long
def test_logical_axes_shard_both_sides_equally():
    found = results(LinenSharded, NnxSharded, axis_rules=RULES, meshes=MESHES)
    assert_passed(found)
    assert len(found) == 6
    assert found["forward@data2.tensor2-auto"].channels["sharding"].detail.startswith("3 of ")


@pytest.mark.long
def test_swapped_logical_axes_fail_tree_and_sharding():
    found = results(
        LinenSharded,
        lambda rngs: NnxSharded(rngs, axes=("hidden", "in")),
        axis_rules=RULES,
        meshes=MESHES[1:],
    )
    for result in found.values():
        assert {"tree", "sharding"} <= {channel.name for channel in result.blocking}
    assert "model/up/kernel: reference logical axes ('in', 'hidden')" in findings_text(
        found["forward@data2.tensor2-auto"]
    )


CONSTRAINED_ON = ("single", "data2-auto", "data2.tensor2-auto", "data2.tensor2-explicit")
"""One mesh lacks an axis of the rules; constraints on an explicit one would be assertions."""


def constrained(base, axes):
    """Returns a model with a constraint on its results by logical axes."""

    class Constrained(base):
        def __call__(self, x):
            return linen.with_logical_constraint(super().__call__(x), axes)

    return Constrained


@pytest.mark.parametrize(("axes", "passes"), [(("batch", "hidden"), True), (("batch", None), False)])
def test_a_constraint_by_logical_axes_counts(axes, passes):
    left, right = constrained(LinenSharded, ("batch", "hidden")), constrained(NnxSharded, axes)
    found = results(left, right, axis_rules=RULES, meshes=CONSTRAINED_ON, programs=("forward",))
    failed = {name for name, result in found.items() if result.blocking}
    assert failed == (set() if passes else {"forward@data2.tensor2-auto"})


# --- the lower rungs ---


class LinenSum(linen.Module):
    @linen.compact
    def __call__(self, x):
        a, b = (self.param(name, linen.initializers.normal(), (D, F)) for name in "ab")
        return x @ (a + b)


class NnxSum(nnx.Module):
    """The twin of `LinenSum`, summed in a different order; ``error`` is relative to the right value."""

    def __init__(self, rngs, error=0.0):
        self.a, self.b = (nnx.Param(nnx.initializers.normal()(rngs.params(), (D, F))) for _ in "ab")
        self.error = error

    def __call__(self, x):
        return (x @ self.a[...] + x @ self.b[...]) * (1 + self.error)


@pytest.mark.long
def test_another_order_of_summation_is_within_the_floor_or_arbitrated():
    found = results(LinenSum, NnxSum, not_applicable={"memory": "one side makes two products"})
    for channel in ("values", "gradients", "state"):
        assert set(rungs(found, channel).values()) <= {"bitwise", "floor", "arbitrated"}
    assert rungs(found, "values")["forward"] in ("floor", "arbitrated")
    assert_passed(found)


@pytest.mark.long
def test_a_hundred_times_the_noise_fails():
    found = results(LinenSum, lambda rngs: NnxSum(rngs, error=100 * 2.0**-23))
    assert rungs(found, "values")["forward"] == "failed"


def narrow(x):
    """bfloat16, except in the float64 run."""
    return x.astype(jnp.bfloat16) if x.dtype == jnp.float32 else x


class LinenNarrow(linen.Module):
    @linen.compact
    def __call__(self, x):
        a, b = (narrow(self.param(name, linen.initializers.normal(), (D, F))) for name in "ab")
        return (narrow(x) @ (a + b)).astype(x.dtype)


class NnxNarrow(NnxSum):
    def __call__(self, x):
        a, b = narrow(self.a[...]), narrow(self.b[...])
        return (narrow(x) @ a + narrow(x) @ b).astype(x.dtype) * (1 + self.error)


@pytest.mark.long
@pytest.mark.parametrize(("error", "rung"), [(0.0, "floor"), (100 * 2.0**-9, "failed")])
def test_rounding_to_narrow_floats_has_its_own_floor(error, rung):
    """Nudging float32 inputs hardly changes values rounded to bfloat16; rounding them the other way does."""
    found = results(
        LinenNarrow, lambda rngs: NnxNarrow(rngs, error), not_applicable={"memory": "another program"}
    )
    assert rungs(found, "values")["forward"] == rung, findings_text(found["forward@single"])
    assert str(found["forward@single"].verdict) == ("passed" if error == 0 else "failed")


# --- registering ---


def test_two_pairs_are_registered_in_one_process():
    pairs = [
        parity.twins(name, linen=LinenSum, nnx=NnxSum, inputs=inputs, loss=loss, meshes=MESHES)
        for name in ("one", "two")
    ]
    assert [case.id for pair in pairs for case in pair.cases({}) if case.program == "grad"] == [
        f"{name}/grad@{mesh}" for name in ("one", "two") for mesh in MESHES
    ]


def test_an_option_that_there_is_not_is_an_error():
    with pytest.raises(
        TypeError, match=r"pair one: parity.twins got lowst, expected its own arguments or bridged"
    ):
        parity.twins("one", linen=LinenSum, nnx=NnxSum, inputs=inputs, loss=loss, **{"lowst": "proved"})


def test_a_pair_without_a_config_takes_no_settings():
    pair = parity.twins("one", linen=LinenSum, nnx=NnxSum, inputs=inputs, loss=loss)
    with pytest.raises(ValueError, match=r"pair one: got settings \{'embed': '48'\}, expected none"):
        pair.cases({"embed": "48"})
