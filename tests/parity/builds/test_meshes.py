"""Meshes by name: parsing, printing, and errors for impossible meshes."""

import re

import jax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import NamedSharding, PartitionSpec

from parity.builds.meshes import MeshSpec, Mode, Topology
from parity.compare.backends.devices import Devices
from parity.compare.backends.registry import BACKENDS, find

few = settings(max_examples=150, deadline=None, database=None, derandomize=True)

AXES = st.lists(
    st.tuples(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), st.integers(1, 512)),
    min_size=1,
    max_size=4,
    unique_by=lambda axis: axis[0],
)


@pytest.mark.long
@few
@given(AXES, st.sampled_from(Mode))
def test_printed_output_is_read_back(axes, mode):
    spec = MeshSpec(axes=tuple(axes), mode=mode)
    assert MeshSpec.parse(str(spec)) == spec
    product = 1
    for _, size in axes:
        product *= size
    assert spec.size == product


@few
@given(st.text(alphabet="abs_.-0189 \N{ARABIC-INDIC DIGIT THREE}", max_size=12))
def test_any_text_is_read_and_printed_stably_or_refused(text):
    try:
        spec = MeshSpec.parse(text)
    except ValueError as error:
        assert str(error).startswith(f"mesh {text!r}")
        return
    assert str(spec) in (text, f"{text}-auto")
    assert MeshSpec.parse(str(spec)) == spec


@pytest.mark.parametrize(
    ("text", "axes", "mode", "printed"),
    [
        ("single", (), Mode.AUTO, "single"),
        ("data8", (("data", 8),), Mode.AUTO, "data8-auto"),
        ("fsdp4.tensor2-explicit", (("fsdp", 4), ("tensor", 2)), Mode.EXPLICIT, "fsdp4.tensor2-explicit"),
        ("fsdp_transpose16", (("fsdp_transpose", 16),), Mode.AUTO, "fsdp_transpose16-auto"),
        ("context1-auto", (("context", 1),), Mode.AUTO, "context1-auto"),
    ],
)
def test_meshes_by_name(text, axes, mode, printed):
    spec = MeshSpec.parse(text)
    assert (spec.axes, spec.mode, str(spec)) == (axes, mode, printed)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("data8-manual", "got mode 'manual', expected one of auto, explicit"),
        ("data8-", "got mode '', expected one of auto, explicit"),
        ("single-explicit", "got mode 'explicit' for a single device"),
        ("data", "expected distinct axes with sizes, such as fsdp4.tensor2-auto"),
        ("data0", "expected distinct axes"),
        ("data4.data2", "expected distinct axes"),
        ("data4..tensor2", "expected distinct axes"),
        ("", "expected distinct axes"),
        ("8", "expected distinct axes"),
        ("Data8", "expected distinct axes"),
    ],
)
def test_errors_name_place_value_and_expectation(text, says):
    with pytest.raises(ValueError, match=re.escape(f"mesh {text!r}: ") + ".*" + re.escape(says)):
        MeshSpec.parse(text)


@pytest.mark.parametrize("mode", Mode)
def test_a_mesh_takes_the_first_devices_in_order(mode):
    mesh = MeshSpec.parse(f"fsdp2.tensor3-{mode}").on(jax.devices())
    assert mesh.axis_names == ("fsdp", "tensor")
    assert mesh.devices.shape == (2, 3)
    assert list(mesh.devices.flat) == jax.devices()[:6]
    expected = {Mode.AUTO: jax.sharding.AxisType.Auto, Mode.EXPLICIT: jax.sharding.AxisType.Explicit}[mode]
    assert mesh.axis_types == (expected, expected)


def test_a_mesh_too_large_names_the_devices_and_the_next_step():
    with pytest.raises(ValueError) as caught:
        MeshSpec.parse("data3.fsdp3").on(jax.devices())
    for part in (
        "mesh data3.fsdp3-auto",
        "needs 9 devices, found 8 (cpu)",
        "choose a smaller mesh",
        "XLA_FLAGS",
    ):
        assert part in str(caught.value)


def test_a_single_device_has_no_mesh_and_no_context():
    cpu = find("cpu")
    assert cpu is BACKENDS["cpu"]
    assert cpu.mesh(MeshSpec()) is None
    with cpu.context(MeshSpec()):
        assert jax.sharding.get_abstract_mesh().empty


def test_the_context_sets_the_mesh_and_takes_it_back():
    spec = MeshSpec.parse("fsdp4.tensor2")
    with find("cpu").context(spec):
        assert jax.sharding.get_abstract_mesh().shape == {"fsdp": 4, "tensor": 2}
    assert jax.sharding.get_abstract_mesh().empty


def test_a_backend_requests_devices_only_for_a_mesh(monkeypatch):
    def none(platform):
        raise AssertionError("asked for devices")

    monkeypatch.setattr(jax, "devices", none)
    assert Devices(name="far").mesh(MeshSpec()) is None


@pytest.mark.parametrize(("name", "hint"), [("cp", "did you mean cpu?"), ("quantum", "expected one of")])
def test_unknown_backends_are_named_with_the_known_ones(name, hint):
    with pytest.raises(ValueError, match=re.escape(f"backend {name!r}")) as caught:
        find(name)
    assert hint in str(caught.value) and "cpu" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        ("v5p:2x2x1", 4),
        ("v5p:8x8x8", 512),
        ("v5e:2x4", 8),
        ("v6e:16x16", 256),
        ("tpu7x:2x2x1", 8),
        ("v4:2x2x2", 16),
    ],
)
def test_a_topology_counts_devices_as_jax_does(text, devices):
    assert Topology.parse(text).devices == devices
    assert str(Topology.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("v5q:2x2x1", r"topology 'v5q:2x2x1': expected one of v4, v5e, .*such as v5p:2x2x1"),
        ("v5p:2x2", r"topology 'v5p:2x2': expected 3 sizes, such as v5p:2x2x1"),
        ("v5e:2x2x1", r"expected 2 sizes, such as v5e:2x1"),
        ("v5p:2x0x1", r"expected 3 sizes"),
        ("v5p", r"expected 3 sizes"),
    ],
)
def test_a_topology_that_is_none_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        Topology.parse(text)


def test_a_topology_lowers_for_more_devices_than_there_are_and_does_not_compile():
    backend, spec = find("lower:v5p:8x8x8"), MeshSpec.parse("fsdp64.tensor8")
    mesh = backend.mesh(spec)
    assert mesh.size == 512
    x = jax.ShapeDtypeStruct(
        (128, 16), "float32", sharding=NamedSharding(mesh, PartitionSpec("fsdp", "tensor"))
    )
    with backend.context(spec):
        lowered = backend.lower(jax.jit(lambda x: x * 2).trace(x))
    assert '"fsdp"=64, "tensor"=8' in lowered.as_text()
    with pytest.raises(ValueError, match="it only lowers; use it with `parity prove`"):
        backend.start(lowered)
    with pytest.raises(ValueError, match=r"needs 512 devices, v5p:2x2x1 has 4; choose a larger topology"):
        find("lower:v5p:2x2x1").mesh(spec)


@pytest.mark.parametrize(
    ("mesh", "named", "meant"),
    [
        ("fspd8-auto", {"fsdp"}, "fsdp"),
        ("data2.fspd4-auto", {"fsdp", "tensor"}, "fsdp"),
        ("tenosr8", {"tensor"}, "tensor"),
        ("tensors8", {"tensor", "fsdp"}, "tensor"),
        ("fsd8", {"fsdp"}, "fsdp"),
        ("exper2.data4", {"expert", "data"}, "expert"),
    ],
)
def test_an_axis_that_is_nearly_one_that_rules_name_is_refused(mesh, named, meant):
    with pytest.raises(
        ValueError, match=rf"got axis \w+, which no rule or leaf names; did you mean {meant}\?"
    ):
        MeshSpec.parse(mesh).check_axes(named)


@pytest.mark.parametrize(
    ("mesh", "named"),
    [
        ("single", {"fsdp"}),
        ("data8", {"fsdp", "tensor"}),
        ("fsdp8", {"fsdp", "tensor"}),
        ("data4.data_b2", {"data"}),
        ("stage2.stages4", {"stage"}),
        ("fspd8", set()),
        ("dp2.tp4", {"tp"}),
        ("tensor_transpose2.tensor4", {"tensor", "fsdp_transpose", "tensor_sequence"}),
        ("autoregressive8", {"context_autoregressive"}),
    ],
)
def test_axes_that_rules_do_not_name_are_allowed(mesh, named):
    MeshSpec.parse(mesh).check_axes(named)
