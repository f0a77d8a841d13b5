"""Backends of found devices: meshes fitted to any number of them, the same cases, and the error without any."""

import dataclasses
import json
import os
import re
import threading
import types
from importlib import metadata

import jax
import jax.numpy as jnp
import pytest

from parity.builds.meshes import MeshSpec
from parity.compare.backends.backend import LEVEL, UNOPTIMISED
from parity.compare.backends.devices import IN_ORDER, Devices
from parity.compare.backends.environment import PLATFORMS
from parity.compare.backends.registry import BACKENDS, find
from parity.compare.evidence import Evidence
from parity.compare.placement import place
from parity.compare.session import Session
from parity.matrix import llama2, sharded
from parity.run.run import run_case
from parity.verdicts import plain


@pytest.fixture
def few(monkeypatch):
    """``few(6)`` makes a backend ``few`` of six of the CPU's devices, as if there were no others."""

    devices = jax.devices

    def make(count):
        def found(platform=None):
            return devices("cpu")[:count] if platform == "few" else devices(platform)

        monkeypatch.setattr(jax, "devices", found)
        backend = Devices(name="few", remedy="add some")
        monkeypatch.setitem(BACKENDS, "few", backend)
        return backend

    return make


@pytest.fixture
def lowered():
    """A loop with an exponential, so that LLVM has an operation to vectorise."""

    def step(x):
        return jax.lax.scan(lambda x, _: (jnp.exp(-x) @ x, x.sum()), x, length=3)

    return jax.jit(step).lower(jnp.ones((16, 16)))


@pytest.mark.slow
def test_cpu_programs_are_compiled_with_default_options(lowered):
    fast, plain = BACKENDS["cpu"].start(lowered)(), lowered.compile()
    assert fast.as_text() == plain.as_text() and "while" in fast.as_text()
    assert fast.memory_analysis().temp_size_in_bytes == plain.memory_analysis().temp_size_in_bytes
    assert fast.cost_analysis()["flops"] == plain.cost_analysis()["flops"] > 0


def test_both_sides_compile_at_the_same_time():
    both = threading.Barrier(2)

    class Meeting:
        def compiler_ir(self):
            count = types.SimpleNamespace(value=1)
            return types.SimpleNamespace(
                operation=types.SimpleNamespace(attributes={"mhlo.num_partitions": count})
            )

        def compile(self, **options):
            return both.wait(timeout=60)  # raises if the other side waits for this one

    waits = [BACKENDS["cpu"].start(Meeting()) for _ in range(2)]
    assert sorted(wait() for wait in waits) == [0, 1]


@pytest.mark.long
def test_a_train_step_is_compiled_with_default_options():
    (case,) = [case for case in SMOKE if case.id.startswith("llama2-scan/train_step")]
    side = Evidence.of(case, Session()).reference
    with side.backend.context(side.mesh):
        assert side.compiled.as_text() == side.lowered.compile().as_text()


@pytest.mark.parametrize(
    ("flags", "options"),
    [("", UNOPTIMISED), ("--xla_backend_optimization_level=3", {}), ("--xla_cpu_max_isa=AVX", UNOPTIMISED)],
)
def test_llvm_optimises_on_request(lowered, flags, options, monkeypatch):
    asked = []
    monkeypatch.setattr(
        type(lowered), "compile", lambda self, compiler_options: asked.append(compiler_options)
    )
    monkeypatch.setenv("XLA_FLAGS", flags)
    BACKENDS["cpu"].start(lowered)()
    optimised = {LEVEL: 3}  # such as a run with contraction
    dataclasses.replace(BACKENDS["cpu"], options=tuple(optimised.items())).start(lowered)()
    assert asked == [options, optimised]


def test_several_devices_are_scheduled_for_memory(lowered, monkeypatch):
    """With XLA's default schedule they may wait for each other's collectives without end."""
    mesh = jax.make_mesh((2,), ("x",), devices=jax.devices()[:2])
    sharded = jax.NamedSharding(mesh, jax.P("x"))
    spread = jax.jit(jnp.sum, in_shardings=sharded).lower(jnp.ones(4))
    monkeypatch.setenv("XLA_FLAGS", "")  # `make test` sets the level there
    given = []
    monkeypatch.setattr(
        type(lowered), "compile", lambda self, compiler_options: given.append(compiler_options)
    )
    for one in (lowered, spread):
        BACKENDS["cpu"].start(one)()
    assert given == [UNOPTIMISED, UNOPTIMISED | IN_ORDER]


def test_the_fusion_emitters_of_jaxlib_0_10_are_not_used_without_optimisation():
    """They make NaN of finite numbers there; later versions do not know the option."""
    known = metadata.version("jaxlib").startswith("0.10.")
    assert UNOPTIMISED[LEVEL] == 0
    assert UNOPTIMISED.get("xla_cpu_use_fusion_emitters", True) is not known


@pytest.mark.parametrize("count", [1, 2, 4, 6])
def test_every_mesh_of_the_matrix_fits_any_number_of_devices(few, count):
    few(count)
    cases = [case for pair in (llama2.PAIR, sharded.PAIR) for case in pair.cases({})]
    for before, after in zip(cases, place(cases, find("few")), strict=True):
        for asked, got in zip(before.meshes, after.meshes, strict=True):
            assert got.size <= count and got.mode == asked.mode
            assert [name for name, _ in got.axes] == [name for name, _ in asked.axes]
            sizes = [(size, fitted) for (_, size), (_, fitted) in zip(asked.axes, got.axes, strict=True)]
            assert all(size % fitted == 0 for size, fitted in sizes)
            assert (got.size > 1) == (count > 1 and asked.size > 1)


SMOKE = [case for pair in (llama2.PAIR, sharded.PAIR) for case in pair.cases({}) if case.smoke]
FORWARD, EXPLICIT = SMOKE[0], SMOKE[-1]


@pytest.mark.long
@pytest.mark.parametrize("count", [1, 2, 6])
def test_a_case_runs_on_the_devices_that_are_there(few, count):
    few(count)
    (case,) = place([FORWARD], find("few"))
    work = Session(paranoid=True)
    result = run_case(case, work)
    assert result.verdict == "passed" and str(result.channels["values"].verdict) == "bitwise"
    sizes = {1: "fsdp1.tensor1-auto", 2: "fsdp1.tensor2-auto", 6: "fsdp2.tensor2-auto"}
    record = plain(result)
    assert (record["mesh"], record["asked"], record["backend"]) == (sizes[count], "fsdp4.tensor2-auto", "few")
    side = next(iter(work._sides.values()))
    used = {device for shard in jax.tree.leaves(side.compiled.input_shardings) for device in shard.device_set}
    assert used == set(jax.devices("cpu")[: case.mesh.size])


@pytest.mark.long
def test_a_train_step_with_types_runs_on_a_fitted_mesh(few):
    few(4)
    (case,) = place([EXPLICIT], find("few"))
    result = run_case(case, Session(paranoid=True))
    assert result.verdict == "passed" and str(result.channels["state"].verdict) == "bitwise"
    assert (
        case.mesh.size == 4
        and case.placement.requested_mesh == "fsdp2.fsdp_transpose2.tensor2.data1-explicit"
    )


def test_a_case_whose_stages_fit_no_mesh_is_skipped_with_the_reason(few):
    few(2)
    staged = dataclasses.replace(FORWARD, mesh=MeshSpec.parse("stage4.fsdp2"), fixed_axes=("stage",))
    result = run_case(place([staged], find("few"))[0], Session())
    reasons = {channel.detail for channel in result.channels.values()}
    assert result.verdict == "skipped" and reasons == {
        "mesh stage4.fsdp2-auto: stage4 needs 4 devices, found 2"
    }


def test_devices_that_are_not_there_are_one_message(capfd, monkeypatch):
    def none(platform):
        os.write(2, b"E0000 common_lib.cc: no jellyfish\n")
        raise RuntimeError("Unable to initialize backend 'tpu': NOT_FOUND (set JAX_PLATFORMS='' to choose)")

    monkeypatch.setattr(jax, "devices", none)
    backend = Devices(name="tpu", remedy="run on a TPU machine")
    message = (
        "backend tpu: JAX finds no such device (Unable to initialize backend 'tpu': NOT_FOUND); "
        "run on a TPU machine"
    )
    for call in (lambda: backend.fit(MeshSpec()), lambda: backend.mesh(MeshSpec.parse("data2"))):
        with pytest.raises(ValueError, match=re.escape(message)):
            call()
    assert capfd.readouterr().err == ""


def have(platform):
    try:
        return bool(jax.devices(platform))
    except RuntimeError:
        return False


@pytest.mark.long
@pytest.mark.parametrize("platform", PLATFORMS)
def test_an_unknown_name_is_wrong_usage(shell, tmp_path, platform):
    if have(platform):
        pytest.skip(f"this machine has a {platform}")
    ended = shell("run", "smoke", "--backend", platform, cwd=tmp_path)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1), ended.err
    assert ended.err.startswith(f"parity: backend {platform}: JAX finds no such device (")
    assert "run on a" in ended.err


def test_one_accelerator_is_not_for_two_processes(command, few, monkeypatch):
    few(2)
    monkeypatch.setitem(PLATFORMS, "few", "cpu")
    ended = command("run", "smoke", "--backend", "few", "--workers", "2")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == "parity: --workers 2: backend few belongs to one process; leave it out\n"


@pytest.mark.slow
def test_the_command_runs_on_found_devices_and_names_the_mesh(command, few, monkeypatch, tmp_path):
    few(2)
    monkeypatch.setitem(PLATFORMS, "few", "cpu")
    ended = command("run", "llama2-scan/forward@fsdp4.tensor2-auto", "--backend", "few", "--json", "r.json")
    assert ended.code == 0 and "fsdp4.tensor2-auto fitted to few as fsdp1.tensor2-auto" in ended.out
    (case,) = json.loads((tmp_path / "r.json").read_text())["cases"]
    assert (case["mesh"], case["asked"], case["backend"]) == (
        "fsdp1.tensor2-auto",
        "fsdp4.tensor2-auto",
        "few",
    )
