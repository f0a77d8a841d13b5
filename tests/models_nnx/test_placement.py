"""Meshes, bytes per device, ZeRO-1 and the unsharded-share guard."""

import pathlib
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from meshes import make_mesh, parse_mesh

from models_nnx.shared import sharding
from models_nnx.shared.sharding import PlacedLeaf, ShardingError, ShardMode

few = settings(max_examples=400, deadline=None, database=None, derandomize=True)


def mesh_of(text):
    axes = parse_mesh(text)
    return AbstractMesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))


def test_canonical_spec_makes_equal_placements_equal():
    mesh = mesh_of("fsdp2.tensor2.context1")
    same = [P("fsdp"), P("fsdp", None), P(("fsdp",), "context"), P(("fsdp", "context"), ())]
    assert {sharding.canonical_spec(spec, 2, mesh) for spec in same} == {P("fsdp", None)}
    assert sharding.canonical_spec(P(("tensor", "fsdp")), 1, mesh) == P(("tensor", "fsdp"))


@pytest.mark.parametrize("dtype", ["float32", jnp.bfloat16, np.int8, np.dtype("float16")])
@pytest.mark.parametrize("spec", [P(), P("fsdp"), P(None, ("tensor", "fsdp")), P("tensor", "fsdp")])
def test_bytes_per_device_counts_one_device(dtype, spec):
    mesh = make_mesh({"fsdp": 2, "tensor": 2}, ShardMode.AUTO)
    array = jax.device_put(np.zeros((4, 12), dtype), NamedSharding(mesh, spec))
    held = {shard.data.nbytes for shard in array.addressable_shards}
    assert held == {sharding.bytes_per_device(array.shape, dtype, spec, mesh)}


def test_bytes_per_device_of_keys_and_of_sizes_that_do_not_divide():
    mesh = mesh_of("fsdp2")
    key = jax.random.key(0)
    assert sharding.bytes_per_device(key.shape, key.dtype, P(), mesh) == 8
    assert sharding.bytes_per_device((5, 3), "float32", P("fsdp"), mesh) == 3 * 3 * 4


@pytest.mark.parametrize(
    ("text", "spec", "shape", "expected", "dim", "reason"),
    [
        ("data2.fsdp2", P("fsdp"), (8, 6), P(("fsdp", "data"), None), 0, "dimension 0"),
        ("data2.fsdp2", P("fsdp", None), (6, 6), P("fsdp", "data"), 1, "dimension 1"),
        ("data2.fsdp2", P(None, "fsdp"), (3, 8), P(None, ("fsdp", "data")), 1, "dimension 1"),
        ("data4.context1", P("context"), (8,), P("data"), 0, "dimension 0"),
        ("data2.fsdp2", P(("data", "fsdp")), (8, 8), P(("data", "fsdp"), None), None, "already uses 'data'"),
        ("data2.fsdp2", P("fsdp"), (2, 5), P("fsdp", None), None, "no dimension of (2, 5)"),
        ("data2.fsdp2", P(), (), P(), None, "no dimension"),
        ("data2.fsdp2", P(), (0, 3), P(None, None), None, "no dimension"),
        ("data1.fsdp2", P("fsdp"), (8,), P("fsdp"), None, "absent or of size 1"),
        ("fsdp2", P("fsdp"), (8,), P("fsdp"), None, "absent or of size 1"),
    ],
)
def test_zero1(text, spec, shape, expected, dim, reason):
    got = sharding.zero1_spec(spec, shape, mesh_of(text))
    assert (got.spec, got.dim) == (expected, dim) and reason in got.reason


@pytest.mark.long
@few
@given(
    st.lists(st.sampled_from((1, 2, 3, 4, 6, 8, 12)), max_size=4),
    st.permutations(("fsdp", "tensor", None, None)),
    st.sampled_from((1, 2, 3, 4)),
)
def test_zero1_divides_by_exactly_the_axis_or_reports_that_it_did_not(shape, entries, count):
    mesh = mesh_of(f"data{count}.fsdp2.tensor2")
    spec = P(*(e if size % 2 == 0 else None for e, size in zip(entries, shape, strict=False)))
    got = sharding.zero1_spec(spec, shape, mesh)
    before = NamedSharding(mesh, spec).shard_shape(tuple(shape))
    after = NamedSharding(mesh, got.spec).shard_shape(tuple(shape))
    assert np.prod(before) == np.prod(after) * (1 if got.dim is None else count)
    divisible = [dim for dim, size in enumerate(before) if size % count == 0]
    assert got.dim == (divisible[0] if divisible and count > 1 else None)
    assert got.reason.startswith("unchanged" if got.dim is None else "dimension")
    again = sharding.zero1_spec(got.spec, shape, mesh)
    assert got.dim is None or (again.spec == got.spec and again.dim is None)


@pytest.mark.parametrize("mode", ShardMode)
def test_zero1_moments_shrink_by_the_data_axis_and_stay_put(mode):
    mesh = make_mesh({"data": 4, "fsdp": 2}, mode)
    shape, spec = (6, 8), P("fsdp", None)
    placed = NamedSharding(mesh, sharding.zero1_spec(spec, shape, mesh).spec)
    with jax.set_mesh(mesh):
        grads = jax.device_put(np.ones(shape, np.float32), NamedSharding(mesh, spec))
        moment = jax.device_put(np.zeros(shape, np.float32), placed)
        grads_like = jax.jit(
            lambda m, g: 0.5 * m + (jax.sharding.reshard(g, placed) if mode is ShardMode.EXPLICIT else g),
            out_shardings=placed,
        )
        for _ in range(3):
            moment = grads_like(moment, grads)
            assert moment.sharding.is_equivalent_to(placed, 2)
    whole = sharding.bytes_per_device(shape, "float32", spec, mesh)
    assert {shard.data.nbytes for shard in moment.addressable_shards} == {whole // 4}
    np.testing.assert_array_equal(moment, np.full(shape, 1.75, np.float32))


LEAVES = {
    "mlp/w": PlacedLeaf(shape=(8, 6), dtype="float32", spec=P("fsdp", None)),
    "head/w": PlacedLeaf(shape=(4, 8), dtype="float32", spec=P(None, "fsdp")),
    "norm/scale": PlacedLeaf(shape=(8,), dtype="bfloat16", spec=P("context")),
    "router/w": PlacedLeaf(shape=(8, 3), dtype="float32", spec=P("data")),
}
WHOLE = 8 * 2 + 8 * 3 * 4


def test_unsharded_share_counts_bytes_and_names_leaves():
    mesh = mesh_of("data2.fsdp2.context2")
    result = sharding.unsharded_share(LEAVES, mesh)
    assert result.leaves == (("router/w", 96), ("norm/scale", 16))
    assert result.share == pytest.approx(WHOLE / (WHOLE + 8 * 6 * 4 + 4 * 8 * 4))
    assert sharding.unsharded_share(LEAVES, mesh_of("data2.fsdp1.context2")).share == 0.0
    assert sharding.check_sharded(LEAVES, mesh, tolerance=0.5) == result


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: sharding.canonical_spec(P("fsdp", None), 1, mesh_of("fsdp2")),
            r"got P.* for 1 dimensions, expected at most one entry each; shorten",
        ),
        (
            lambda: sharding.canonical_spec(P("fsdpp"), 1, mesh_of("fsdp2")),
            r"got P.*, expected axes of the mesh; did you mean 'fsdp'\?",
        ),
        (
            lambda: sharding.unsharded_share({}, mesh_of("fsdp2")),
            r"got no leaves, expected the parameters; check",
        ),
        (
            lambda: sharding.check_sharded(LEAVES, mesh_of("data2.fsdp2.context2"), 0.1),
            r"check_sharded: got 25.9% of the bytes unsharded on .*, expected at most 10.0%; largest of 2 "
            r"leaves: router/w \(96 bytes\), norm/scale \(16 bytes\); check names",
        ),
    ],
)
def test_errors_name_place_got_expected_and_next_step(call, message):
    with pytest.raises(ShardingError, match=message):
        call()


@pytest.mark.slow
def test_sharding_modules_import_no_flax():
    folder = pathlib.Path(sharding.__file__).parent
    for name in ("mesh", "placement", "sharding"):
        text = (folder / f"{name}.py").read_text()
        assert not re.search(r"^\s*(import|from) flax", text, re.MULTILINE), name
    code = "import sys; sys.modules['flax'] = None; import models_nnx.shared.sharding"
    subprocess.run([sys.executable, "-B", "-c", code], check=True, cwd=folder.parent)
