"""Rule tables, and `resolve` against Flax Linen."""

import inspect

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from meshes import parse_mesh

from models_nnx.shared import mesh as mesh_module
from models_nnx.shared import placement, sharding
from models_nnx.shared.sharding import DEFAULT_RULES, MESH_AXES, ShardingError

NAMES = ("embed", "mlp", "heads", "vocab", "batch", "length")
MESHES = (
    "data8.context1",
    "fsdp8.tensor1",
    "fsdp4.tensor2.context1",
    "fsdp2.fsdp_transpose2.tensor2.expert1",
    "data2.fsdp2.context2.tensor1",
    "data4.expert2.fsdp1",
)
BTD = ("activation_batch", "activation_length", "activation_embed")
BTF = ("activation_batch", "activation_length", "activation_mlp")
TENSORS = (
    ("embed", "mlp"),
    ("mlp", "embed"),
    ("embed", "heads", "head_dim"),
    ("heads", "head_dim", "embed"),
    ("vocab", "embed"),
    ("expert", "embed", "mlp"),
    ("layers", "embed", "mlp"),
    ("embed", "q_lora"),
    ("q_lora", "heads", "head_dim"),
    ("norm",),
    BTD,
    BTF,
    ("activation_expert", "activation_batch_no_exp", "activation_length", "activation_mlp"),
    ("activation_embed_and_logits_batch", "activation_length", "activation_vocab"),
)

few = settings(max_examples=400, deadline=None, database=None, derandomize=True)
many = settings(few, max_examples=1200)


def abstract_mesh_of(axes):
    return AbstractMesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))


def abstract_mesh(text):
    return abstract_mesh_of(parse_mesh(text))


def entry_axes(entry):
    return () if entry is None else (entry,) if isinstance(entry, str) else tuple(entry)


def spec_axes(spec):
    return [entry_axes(entry) for entry in spec]


axis_lists = st.lists(st.sampled_from(MESH_AXES), min_size=1, max_size=3, unique=True)
rule_targets = st.none() | st.sampled_from(MESH_AXES) | axis_lists.map(tuple)
rule_tables = st.lists(st.tuples(st.sampled_from(NAMES), rule_targets), max_size=14).map(tuple)
tensors = st.lists(st.sampled_from((*NAMES, "unknown")), max_size=5, unique=True).flatmap(
    lambda names: st.lists(st.booleans(), min_size=len(names), max_size=len(names)).map(
        lambda keep: tuple(name if kept else None for name, kept in zip(names, keep, strict=True))
    )
)


@st.composite
def meshes(draw):
    names = tuple(draw(st.lists(st.sampled_from(MESH_AXES), min_size=1, unique=True)))
    counts = tuple(draw(st.sampled_from((1, 2, 3))) for _ in names)
    return AbstractMesh(counts, names, axis_types=(AxisType.Auto,) * len(names))


@pytest.mark.long
@many
@given(tensors, rule_tables)
def test_resolve_equals_linen_when_every_axis_exists_and_is_larger_than_one(names, rules):
    mesh = AbstractMesh((2,) * len(MESH_AXES), MESH_AXES, axis_types=(AxisType.Auto,) * len(MESH_AXES))
    got = sharding.resolve(names, (2 ** len(MESH_AXES),) * len(names), rules, mesh)
    assert spec_axes(got) == spec_axes(nn.logical_to_mesh_axes(names, rules))


@pytest.mark.long
@many
@given(tensors, rule_tables, meshes())
def test_resolve_equals_linen_except_for_absent_and_size_one_axes(names, rules, mesh):
    usable = tuple(rule for rule in rules if set(entry_axes(rule[1])) <= set(mesh.shape))
    reference = spec_axes(nn.logical_to_mesh_axes(names, usable))
    expected = [tuple(axis for axis in axes if mesh.shape[axis] > 1) for axes in reference]
    got = sharding.resolve(names, (6 ** len(MESH_AXES),) * len(names), rules, mesh)
    assert spec_axes(got) == expected
    flat = sum(spec_axes(got), ())
    assert len(flat) == len(set(flat))
    assert all(not isinstance(entry, tuple) or len(entry) > 1 for entry in got)
    assert len(got) == len(names)


@pytest.mark.long
@many
@given(tensors, rule_tables, meshes(), st.data())
def test_resolve_accepts_exactly_the_shapes_that_jax_can_shard(names, rules, mesh, data):
    shape = tuple(data.draw(st.sampled_from((1, 2, 3, 4, 5, 6, 12, 36))) for _ in names)
    try:
        spec = sharding.resolve(names, shape, rules, mesh, where="params/leaf")
    except ShardingError as error:
        assert error.dim is not None and error.spec is not None and error.fitting_spec is not None
        with pytest.raises(ValueError, match=r"evenly divide|divisible"):
            NamedSharding(mesh, error.spec).shard_shape(shape)
        assert error.fitting_spec[error.dim] is None and error.where == "params/leaf"
    else:
        local = NamedSharding(mesh, spec).shard_shape(shape)
        assert sharding.bytes_per_device(shape, "float32", spec, mesh) == 4 * int(np.prod(local))


@pytest.mark.long
@few
@given(tensors, rule_tables, meshes())
def test_explain_agrees_with_resolve_and_names_a_rule_or_a_reason(names, rules, mesh):
    shape = (6 ** len(MESH_AXES),) * len(names)
    spec = sharding.resolve(names, shape, rules, mesh)
    for name, entry, binding in zip(names, spec, sharding.explain(names, shape, rules, mesh), strict=True):
        assert binding.mesh_axes == entry_axes(entry) and binding.name == name
        if binding.rule_index is None:
            assert "replicated" in binding.reason and binding.mesh_axes == ()
        else:
            assert rules[binding.rule_index] == binding.rule and binding.rule[0] == name
            assert f"rule {binding.rule_index}" in binding.reason


REPEATED = (
    ("mlp", "fsdp_transpose"),
    ("embed", ("fsdp", "fsdp_transpose")),
    ("embed", "fsdp"),
    ("embed", "fsdp_transpose"),
)


@pytest.mark.parametrize(
    ("mesh", "names", "expected"),
    [
        ("fsdp2.fsdp_transpose2", ("embed", "heads"), P(("fsdp", "fsdp_transpose"), None)),
        ("fsdp2.fsdp_transpose2", ("embed", "mlp"), P("fsdp", "fsdp_transpose")),
        ("fsdp2.fsdp_transpose2", ("mlp", "embed"), P("fsdp_transpose", "fsdp")),
        ("fsdp4", ("embed", "mlp"), P("fsdp", None)),
        ("fsdp_transpose4", ("embed", "heads"), P("fsdp_transpose", None)),
        ("fsdp_transpose4", ("embed", "mlp"), P(None, "fsdp_transpose")),
        ("fsdp1.fsdp_transpose4", ("embed", "heads"), P("fsdp_transpose", None)),
        ("fsdp4.fsdp_transpose1", ("embed", "mlp"), P("fsdp", None)),
        ("data8", ("embed", "mlp"), P(None, None)),
    ],
)
def test_repeated_embed_entries(mesh, names, expected):
    assert sharding.resolve(names, (8, 8), REPEATED, abstract_mesh(mesh)) == expected
    as_dict = tuple(dict(REPEATED).items())
    if mesh == "fsdp2.fsdp_transpose2":
        assert sharding.resolve(names, (8, 8), as_dict, abstract_mesh(mesh)) != expected


def test_a_rule_to_none_stops_the_walk():
    rules = (("embed", None), ("embed", "fsdp"))
    (binding,) = sharding.explain(("embed",), (8,), rules, abstract_mesh("fsdp2"))
    assert binding.mesh_axes == () and binding.rule_index == 0


def test_explain_gives_the_reason_for_no_rule():
    rules = (("mlp", "fsdp"), ("embed", "fsdp"), ("embed", ("tensor", "fsdp")))
    mesh = abstract_mesh("fsdp2.context1")
    embed, mlp, typo, none = sharding.explain(("embed", "mlp", "embd", None), (4, 4, 4, 4), rules, mesh)
    assert "rule 1 ('embed', 'fsdp'): 'fsdp' is bound to dimension 1" in embed.reason
    assert "mesh has no axis 'tensor'" in embed.reason
    assert mlp.reason == "rule 0 ('mlp', 'fsdp')" and mlp.shards == 2
    assert "no rule names 'embd'" in typo.reason
    assert none.reason == "no logical name: replicated"
    (one,) = sharding.explain(("length",), (4,), (("length", "context"),), mesh)
    assert "'context'" in one.reason and "size 1" in one.reason


@pytest.mark.parametrize("names", TENSORS, ids="-".join)
@pytest.mark.parametrize("text", MESHES)
def test_default_rules_do_not_depend_on_size_one_axes(text, names):
    axes = {axis: size for axis, size in parse_mesh(text).items() if size > 1}
    full = {axis: axes.get(axis, 1) for axis in MESH_AXES}
    specs = {
        sharding.resolve(names, (8,) * len(names), DEFAULT_RULES, abstract_mesh_of(case))
        for case in (axes, parse_mesh(text), full)
    }
    assert len(specs) == 1


@pytest.mark.parametrize(
    ("text", "names", "expected"),
    [
        ("data8.context1", BTD, P("data", None, None)),
        ("fsdp4.tensor2.context1", BTF, P("fsdp", None, "tensor")),
        ("data2.fsdp2.context2.tensor1", BTD, P(("data", "fsdp"), "context", None)),
        ("data4.expert2.fsdp1", BTD, P(("data", "expert"), None, None)),
        ("data4.expert2.fsdp1", ("expert", "embed", "mlp"), P("expert", None, None)),
        ("fsdp2.fsdp_transpose2.tensor2.expert1", ("embed", "mlp"), P("fsdp", ("fsdp_transpose", "tensor"))),
        (
            "fsdp2.fsdp_transpose2.tensor2.expert1",
            ("vocab", "embed"),
            P("tensor", ("fsdp", "fsdp_transpose")),
        ),
        ("stage2.fsdp2.data2", ("stage", "layers", "embed", "mlp"), P("stage", None, "fsdp", None)),
        ("replica2.fsdp4", ("replica", "embed", "mlp"), P("replica", "fsdp", None)),
        (
            "fsdp2.expert2.context2",
            ("activation_expert", "activation_batch", "activation_length", None),
            P("expert", "fsdp", "context", None),
        ),
    ],
)
def test_default_rules_on_typical_tensors(text, names, expected):
    assert sharding.resolve(names, (8,) * len(names), DEFAULT_RULES, abstract_mesh(text)) == expected


def test_default_rules_are_hashable_and_use_known_axes():
    assert isinstance(hash(DEFAULT_RULES), int)
    assert {axis for rule in DEFAULT_RULES for axis in entry_axes(rule[1])} <= set(MESH_AXES)
    assert len(set(DEFAULT_RULES)) == len(DEFAULT_RULES)


@pytest.mark.slow
@few
@given(st.lists(st.sampled_from(NAMES), max_size=4, unique=True), st.integers(-5, 4))
def test_remove_undoes_insert(names, position):
    rank = len(names) + 1
    if not -rank <= position < rank:
        with pytest.raises(ShardingError, match=rf"got position {position} .*expected -?\d+ to \d+; check"):
            sharding.insert_axis(names, position, "layers")
        return
    stacked = sharding.insert_axis(names, position, "layers")
    assert stacked[position] == "layers" and len(stacked) == rank
    assert sharding.remove_axis(stacked, "layers") == tuple(names)
    assert sharding.remove_axis(stacked, "layers", position) == tuple(names)


def test_two_stacks_keep_separate_names():
    dense = sharding.insert_axis(("embed", "layers"), 0, "dense_layers")
    assert sharding.remove_axis(dense, "dense_layers") == ("embed", "layers")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: sharding.resolve(
                ("vocab", "embed"), (11, 4), DEFAULT_RULES, abstract_mesh("tensor2"), "params/e"
            ),
            r"params/e: dimension 0 \('vocab'\) of .* has size 11, expected a multiple of 2 for tensor=2; "
            r"the rules give P.*'tensor', None\) \(rule \d+ .*\), only P.*None, None\) fits; pad it to 12",
        ),
        (
            lambda: sharding.constrain(jnp.ones((2, 3)), BTD, DEFAULT_RULES),
            r"constrain: got 3 logical axes .* for 2 dimensions, expected one each; name every dimension",
        ),
        (
            lambda: sharding.resolve(("embed", "embed"), (4, 4), DEFAULT_RULES, abstract_mesh("fsdp2"), "w"),
            r"w: got \['embed'\] more than once in .*, expected distinct names; rename one",
        ),
        (
            lambda: sharding.resolve(("embed",), (4,), (("embed", "fdsp"),), abstract_mesh("fsdp2")),
            r"rule 0 \('embed', 'fdsp'\): got 'fdsp', expected a known mesh axis; did you mean 'fsdp'",
        ),
        (
            lambda: sharding.resolve(
                ("embed",), (4,), (("embed", ("fsdp", "fsdp")),), abstract_mesh("fsdp2")
            ),
            r"rule 0 .*: got a mesh axis twice, expected each once; drop one",
        ),
        (
            lambda: sharding.insert_axis(("layers", "embed"), 0, "layers"),
            r"insert_axis: got the name 'layers' for .*, expected a new one; give each stack its own name",
        ),
        (lambda: sharding.insert_axis(("embed",), 0, ""), r"insert_axis: got the name ''"),
        (
            lambda: sharding.remove_axis(("moe_layers", "embed"), "layers"),
            r"remove_axis: got 'layers', expected a name of .*; did you mean 'moe_layers'",
        ),
        (
            lambda: sharding.remove_axis(("embed", "layers"), "layers", 0),
            r"remove_axis: got position 0 for 'layers', expected 1 as in .*; remove the axis",
        ),
    ],
)
def test_errors_name_place_got_expected_and_next_step(call, message):
    with pytest.raises(ShardingError, match=message):
        call()


@pytest.mark.parametrize("module", [mesh_module, placement, sharding], ids=lambda module: module.__name__)
def test_public_functions_and_classes_have_docstrings(module):
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isfunction(value) or inspect.isclass(value):
            assert inspect.getdoc(value), name
