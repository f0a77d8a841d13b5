"""`parity inspect` on a mesh: every leaf with its spec and bytes, exit codes, and the pictures of the report."""

import itertools
import json
import math
import re

import jax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import PartitionSpec

from parity import cli
from parity.builds.meshes import MeshSpec
from parity.builds.tree import Leaf, Role
from parity.compare.layout import Placed, entries
from parity.report.formats.html import cut_up

CASE = "sharded-unroll/train_step@fsdp2.fsdp_transpose2.tensor2.data1-explicit"
few = settings(max_examples=150, deadline=None, database=None, derandomize=True)

# Two dense layers with logical axes; the candidate's axes come from the format field.
TWINS = """
import jax.numpy as jnp, numpy as np
from flax import linen, nnx
import parity

class Linen(linen.Module):
    @linen.compact
    def __call__(self, x):
        init = linen.with_logical_partitioning(linen.initializers.lecun_normal(), ("in", "hidden"))
        return jnp.tanh(linen.Dense(20, kernel_init=init, use_bias=False, name="up")(x))

class Nnx(nnx.Module):
    def __init__(self, rngs):
        init = nnx.with_metadata(nnx.initializers.lecun_normal(), out_sharding={axes}, eager_sharding=False)
        self.up = nnx.Linear(12, 20, kernel_init=init, use_bias=False, rngs=rngs)
    def __call__(self, x):
        return jnp.tanh(self.up(x))

PAIR = parity.twins("tiny", linen=Linen, nnx=Nnx, loss=lambda y, batch: jnp.mean(y**2),
    inputs=lambda seed: {{"x": np.random.default_rng(seed).normal(size=(8, 12)).astype(np.float32)}},
    axis_rules=(("in", "data"), ("hidden", "tensor")), meshes=("single", "data2.tensor4-auto"))
"""


def foreign(folder, axes):
    """Writes a project with one pair."""
    (folder / "tiny_twins.py").write_text(TWINS.format(axes=axes))
    (folder / "pyproject.toml").write_text('[tool.parity]\npairs = ["tiny_twins:PAIR"]\n')


# --- the command ---


def row(out, name):
    """Returns shape, spec and bytes of the one line that begins with ``name``."""
    (line,) = [line for line in out.splitlines() if line.startswith(f"{name} ")]
    return line.removeprefix(name).split()


@pytest.mark.long
def test_every_leaf_is_shown_with_its_spec_and_bytes_per_device(command, real, monkeypatch):
    monkeypatch.setattr(cli.options, "NARROWEST", 250)
    ended = command("inspect", CASE)
    assert (ended.code, ended.err) == (0, "")
    leaves = real(CASE.removeprefix("sharded-")).reference().leaves
    placed = ended.out[ended.out.index(f"\n{CASE}  equal  ") :]
    sizes = [line.split()[-1] for line in placed.splitlines() if re.search(r" [\d,]+$", line)]
    assert len(sizes) == len(leaves)
    # float32: 48*80*4 bytes over fsdp2 * (fsdp_transpose2 * tensor2); 272*48*4 over tensor2 * (2 * 2); 48*4 whole.
    assert row(placed, "decoder/layers_0/mlp/up/kernel") == [
        "48x80",
        "embed/fsdp,",
        "mlp/fsdp_transpose+tensor",
        "1,920",
    ]
    assert row(placed, "embedder/embedding") == [
        "272x48",
        "vocab/tensor,",
        "embed/fsdp+fsdp_transpose",
        "6,528",
    ]
    assert row(placed, "final_norm/scale") == ["48", "norm", "192"]
    assert row(placed, "key") == ["scalar", "replicated", "8"]
    assert row(placed, "last_finite") == ["scalar", "replicated", "1"]
    assert f"\n{CASE}  equal  " in ended.out


@pytest.mark.long
def test_the_bytes_by_role_are_the_sum_of_the_leaves(command):
    ended = command("inspect", CASE)
    first, *lines = ended.out[ended.out.index(f"\n{CASE}  equal  ") + 1 :].splitlines()
    held = dict(re.findall(r"(\w+) ([\d,]+)(?=[,;] (?:params|rng|\d))", first))
    totals, role = {}, None
    for line in lines:
        role = line.strip() if line.strip() in ("params", "optimizer", "rng") else role
        if found := re.search(r" ([\d,]+)$", line):
            totals[role] = totals.get(role, 0) + int(found[1].replace(",", ""))
    assert totals == {name: int(size.replace(",", "")) for name, size in held.items()}


@pytest.mark.slow
def test_leaves_that_differ_exit_1_with_both_specs(command, tmp_path):
    foreign(tmp_path, '("hidden", "in")')
    ended = command("inspect", "tiny/forward@data2.tensor4-auto")
    assert ended.code == 1
    lines = ended.out.splitlines()
    at = next(index for index, line in enumerate(lines) if line.startswith("up/kernel "))
    assert lines[at].split() == ["up/kernel", "12x20", "in/data,", "hidden/tensor", "120"]
    assert lines[at + 1].split() == ["differs", "candidate", "hidden/tensor,", "in/data", "120"]
    assert "logical axes ('in', 'hidden'), candidate logical axes ('hidden', 'in')" in ended.out


def test_leaves_that_agree_exit_0(command, tmp_path):
    foreign(tmp_path, '("in", "hidden")')
    ended = command("inspect", "tiny/forward@data*")
    assert ended.code == 0 and "differs" not in ended.out
    assert "\ntiny/forward@data2.tensor4-auto  equal  " in ended.out


def recorded(command, folder, axes):
    foreign(folder, axes)
    command("run", "tiny/forward", "tiny/grad", "--json", "r.json")
    cases = json.loads((folder / "r.json").read_text())["cases"]
    return {case["id"]: case["channels"]["sharding"].get("tables", {}).get("specs") for case in cases}


@pytest.mark.slow
def test_the_record_has_a_row_for_each_way_in_which_leaves_are_cut(command, tmp_path):
    found = recorded(command, tmp_path, '("in", "hidden")')
    rows = found["tiny/grad@data2.tensor4-auto"]
    assert rows[0] == {
        "roles": "optimizer, params",
        "leaves": 3,
        "leaf": "params/up/kernel",
        "shape": "12x20",
        "reference": "data,tensor",
        "reference_axes": "in,hidden",
        "candidate": "data,tensor",
        "candidate_axes": "in,hidden",
        "bytes": 3 * 12 * 20 * 4 // 8,
    }
    assert [(row["reference"], row["candidate"], row["leaves"]) for row in rows[1:]] == [("", "", 2)]
    assert found["tiny/grad@single"] is None  # one device: no picture


@pytest.mark.slow
def test_leaves_with_other_shardings_are_recorded_for_each_side(command, tmp_path):
    row = recorded(command, tmp_path, '("hidden", "in")')["tiny/forward@data2.tensor4-auto"][0]
    assert (row["reference"], row["reference_axes"]) == ("data,tensor", "in,hidden")
    assert (row["candidate"], row["candidate_axes"]) == ("tensor,data", "hidden,in")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nope",), "selector 'nope': matches none"),
    ],
)
def test_wrong_usage_exits_2_in_one_line(arguments, words, command):
    ended = command("inspect", *arguments)
    assert ended.code == 2 and ended.out == ""
    assert words in ended.err and len(ended.err.strip().splitlines()) == 1


# --- the pictures ---

AXES = ("data", "fsdp", "tensor", "context")


def leaf(spec, shape, sizes):
    shards = math.prod(sizes[axis] for part in entries(spec, len(shape)) for axis in part)
    return Placed(
        leaf=Leaf(
            path="w",
            shape=shape,
            dtype="float32",
            role=Role.PARAMS,
            logical_axes=tuple(f"name{dim}" for dim in range(len(shape))),
        ),
        spec=spec,
        bytes_per_device=4 * math.prod(shape) // shards,
        why="",
    )


@st.composite
def placements(draw):
    """A mesh of up to 8 devices and an array of up to 3 dimensions with some of its axes on them."""
    sizes = draw(
        st.sampled_from([(8,), (2, 4), (4, 2), (2, 2, 2), (1, 8), (2, 1, 4), (3, 2), (2, 1, 2, 2), (1,)])
    )
    mesh = dict(zip(draw(st.permutations(AXES)), sizes, strict=False))
    rank = draw(st.integers(0, 3))
    parts = [[] for _ in range(rank)]
    for axis in draw(st.permutations(list(mesh))):
        at = draw(st.integers(-1, rank - 1))
        if at >= 0:
            parts[at].append(axis)
    return mesh, PartitionSpec(*(tuple(part) or None for part in parts)), (24,) * rank


def picture_of(drawn, sizes):
    mesh, cut = MeshSpec(axes=tuple(sizes.items())), ",".join("+".join(part) for part in drawn.axes)
    picture = cut_up(str(mesh), cut, ",".join(name or "" for name in drawn.leaf.logical_axes))
    assert picture
    return picture


def devices_of(text):
    """Returns the devices that a cell names, and the number of further ones."""
    listed, _, more = text.partition(" and ")
    return [int(number) for number in listed.split(", ")], int(more.split()[0]) if more else 0


@pytest.mark.slow
@few
@given(placements())
def test_every_device_is_drawn_once_where_jax_puts_its_shard(placement):
    sizes, spec, shape = placement
    drawn = leaf(spec, shape, sizes)
    picture = picture_of(drawn, sizes)
    mesh = MeshSpec(axes=tuple(sizes.items())).on(jax.devices())
    starts = {
        device.id: tuple(part.start or 0 for part in index)
        for device, index in jax.sharding.NamedSharding(mesh, spec).devices_indices_map(shape).items()
    }
    order = {start: number for number, start in enumerate(sorted(set(starts.values())))}
    columns = len(picture["cells"][0])
    assert {len(row) for row in picture["cells"]} == {columns}
    cells = [cell for row in picture["cells"] for cell in row]
    assert len(cells) == len(order)
    seen = 0
    for number, (text, _) in enumerate(cells):
        listed, more = devices_of(text)
        assert {order[starts[device]] for device in listed} == {number}
        assert len(listed) + more == sum(order[start] == number for start in starts.values())
        seen += len(listed) + more
    assert seen == math.prod(sizes.values())


@pytest.mark.parametrize("sizes", [{"data": 2, "fsdp": 4}, {"data": 2, "fsdp": 1, "tensor": 3}])
def test_a_fully_sharded_array_has_one_device_per_box_and_a_whole_one_all_in_one(sizes):
    count = math.prod(sizes.values())
    spread = picture_of(leaf(PartitionSpec(None, tuple(sizes)), (24, 24), sizes), sizes)
    assert [text for row in spread["cells"] for text, _ in row] == [str(device) for device in range(count)]
    assert len({colour for row in spread["cells"] for _, colour in row}) == count
    whole = picture_of(leaf(PartitionSpec(), (24, 24), sizes), sizes)
    ((cell,),) = whole["cells"]
    listed, more = devices_of(cell[0])
    assert listed == list(range(6)) and len(listed) + more == count
    assert whole["across"] == "whole on every device" and whole["down"] == ""


def test_rows_and_columns_are_named():
    sizes = {"data": 2, "fsdp": 2, "tensor": 2}
    drawn = leaf(PartitionSpec("tensor", None, ("data", "fsdp")), (4, 6, 8), sizes)
    picture = picture_of(drawn, sizes)
    assert picture["down"] == "dimension 0 (name0) over tensor"
    assert picture["across"] == "dimension 2 (name2) over data, fsdp"
    assert [[text for text, _ in row] for row in picture["cells"]] == [
        ["0", "2", "4", "6"],
        ["1", "3", "5", "7"],
    ]
    assert len(set(itertools.chain.from_iterable(picture["cells"]))) == 8
