"""The ahead-of-time TPU backend: its refusals, its fitting of meshes, and its view of the twins."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from expected import surprises

from models_nnx.shared.ops.grouped import grouped_product
from parity.builds.meshes import FixedAxesError, MeshSpec, Topology
from parity.cases.case import select
from parity.cli.doctor import diagnose
from parity.compare.backends import aot, environment
from parity.compare.backends.aot import AheadOfTime
from parity.compare.backends.backend import quiet
from parity.compare.backends.compiler import Compiler, Resources
from parity.compare.backends.registry import BACKENDS, find, known_backends
from parity.compare.backends.workers import Pool
from parity.compare.placement import place
from parity.compare.session import Session
from parity.compare.side import Side
from parity.matrix import llama2, sharded
from parity.run.run import run_case
from parity.verdicts import Verdict

REPO = Path(__file__).parents[4]
TOPOLOGIES = ("v5p:2x2x1", "v5e:2x4", "v6e:2x2", "tpu7x:2x2x1")
KNOWN = ", ".join((*BACKENDS, "aot:TOPOLOGY"))
MISSING = aot.missing_compiler()
needs_compiler = pytest.mark.skipif(bool(MISSING), reason=f"libtpu is not installed: {MISSING}")


@pytest.fixture
def no_libtpu(monkeypatch):
    """Hides libtpu, as on a machine without the extra."""
    monkeypatch.setitem(sys.modules, "libtpu", None)


# --- without the compiler ---


def test_a_missing_compiler_is_one_message_with_the_command(no_libtpu, command):
    ended = command("run", "smoke", "--backend", "aot:v5p:2x2x1")
    assert ended.code == 2 and ended.out == ""
    assert ended.err == (
        "parity: backend aot:v5p:2x2x1: libtpu, the TPU compiler, is not installed; "
        f'get it with pip install "jax[tpu]=={jax.__version__}"\n'
    )


def test_the_doctor_names_the_install_command(no_libtpu, monkeypatch):
    monkeypatch.setattr(environment, "version", lambda package: None if package == "libtpu" else "1")
    (check,) = [check for check in diagnose(Resources()) if check.name == "libtpu"]
    assert (check.found, check.needed) == ("not installed", False)
    assert check.remedy.startswith('pip install "jax[tpu]==') and "aot:TOPOLOGY" in check.remedy


def test_it_is_among_the_backends():
    assert known_backends() == [*BACKENDS, "aot:TOPOLOGY (v4, v5e, v5p, v6e, tpu7x)"]
    backend = find("aot:v5e:2x4")
    assert backend == AheadOfTime(topology=Topology.parse("v5e:2x4"))
    assert (backend.name, backend.executes, backend.inspects) == ("aot:v5e:2x4", False, True)


@pytest.mark.parametrize(
    ("backend", "says"),
    [
        ("aot:v5q:2x2x1", "topology 'v5q:2x2x1': expected one of v4, v5e, v5p, v6e, tpu7x"),
        ("aot:v5p:2x2", "topology 'v5p:2x2': expected 3 sizes, such as v5p:2x2x1"),
        ("aot", "topology '': expected one of"),
        ("aotv5p", f"expected one of {KNOWN}, such as aot:v5p:2x2x1; did you mean aot?"),
    ],
)
def test_unknown_topologies_are_one_message(backend, says, command):
    ended = command("run", "smoke", "--backend", backend)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert says in ended.err


FITTED = [
    ("fsdp4.tensor2-auto", 4, "fsdp2.tensor2-auto"),
    ("fsdp4.tensor2-explicit", 8, "fsdp4.tensor2-explicit"),
    ("data2.fsdp2.tensor2-auto", 4, "data1.fsdp2.tensor2-auto"),
    ("fsdp64.tensor8-auto", 8, "fsdp2.tensor4-auto"),
    ("data2-auto", 8, "data2-auto"),
    ("single", 4, "single"),
    ("data6-auto", 4, "data3-auto"),
    ("data5-auto", 4, "data1-auto"),
    ("stage3.fsdp2-auto", 4, "stage3.fsdp1-auto"),
    ("stage3.fsdp2-auto", 2, "stage1.fsdp2-auto"),
    ("fsdp4.tensor2-auto", 6, "fsdp2.tensor2-auto"),
    ("data2.fsdp2.context2.expert1-explicit", 6, "data1.fsdp2.context2.expert1-explicit"),
    ("fsdp4.tensor2-explicit", 2, "fsdp1.tensor2-explicit"),
    ("fsdp4.tensor2-explicit", 1, "fsdp1.tensor1-explicit"),
]
WITH_STAGES_HELD = [
    ("stage2.fsdp2.tensor2-auto", 4, "stage2.fsdp1.tensor2-auto"),
    ("data2.stage2.tensor2-auto", 4, "data1.stage2.tensor2-auto"),
    ("stage4.fsdp2-explicit", 4, "stage4.fsdp1-explicit"),
    ("stage3.fsdp2-auto", 4, "stage3.fsdp1-auto"),
    ("fsdp4.tensor2-auto", 4, "fsdp2.tensor2-auto"),
]


@pytest.mark.parametrize(
    ("mesh", "devices", "fitted", "held"),
    [(*row, ()) for row in FITTED] + [(*row, ("stage",)) for row in WITH_STAGES_HELD],
)
def test_a_mesh_that_is_too_large_keeps_its_held_axes_as_many_others_as_fit_and_every_divisor(
    mesh, devices, fitted, held
):
    assert str(MeshSpec.parse(mesh).fitted(devices, held)) == fitted


def test_held_axes_that_need_more_devices_are_named():
    with pytest.raises(FixedAxesError, match=r"mesh stage4.fsdp2-auto: stage4 needs 4 devices, found 2"):
        MeshSpec.parse("stage4.fsdp2").fitted(2, ("stage",))


# --- with it ---


@pytest.mark.slow
@needs_compiler
def test_a_topology_of_half_a_host_is_refused(command):
    ended = command("run", "smoke", "--backend", "aot:v5e:3x3")
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert "topology v5e:3x3: the TPU compiler refuses it (Topology layout" in ended.err


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("mesh", ["single", "fsdp2-auto"])
def test_it_compiles_for_one_device_and_for_part_of_a_slice(mesh):
    backend, spec = find("aot:v5e:2x2"), MeshSpec.parse(mesh)
    with backend.context(spec):
        mesh = backend.mesh(spec)
        where = jax.sharding.NamedSharding(mesh, jax.P("fsdp")) if mesh else backend.placement
        traced = jax.jit(lambda x: x @ x.T).trace(jax.ShapeDtypeStruct((16, 16), jnp.float32, sharding=where))
        text = backend.start(backend.lower(traced))().as_text()
    assert "estimated_cycles" in text


@needs_compiler
def test_output_of_the_compiler_is_hidden_and_attached_to_its_error(capfd):
    def noisy():
        os.write(2, b"E0000 common_lib.cc: no such luck\n")
        raise ValueError("out of luck")

    with pytest.raises(ValueError, match="out of luck") as caught, quiet():
        noisy()
    assert capfd.readouterr().err == ""
    assert caught.value.__notes__ == ["the compiler wrote:\nE0000 common_lib.cc: no such luck"]


def smoke():
    return [case for pair in (llama2.PAIR, sharded.PAIR) for case in pair.cases({}) if case.smoke]


@pytest.mark.long
@needs_compiler
def test_a_proved_case_is_still_compiled_and_nothing_runs(monkeypatch):
    (case,) = place([case for case in smoke() if "/forward" in case.id], find("aot:v5p:2x2x1"))
    ran = []
    monkeypatch.setattr(Side, "run", lambda side, *_, **__: ran.append(side))
    result = run_case(case, Session())
    assert (result.verdict, ran) == ("passed", []) and result.seconds["compile"] > 0
    found = {name: str(channel.verdict) for name, channel in result.channels.items()}
    stated = {
        **dict.fromkeys(("program", "rng", "values", "dots"), "proved"),
        **dict.fromkeys(("collectives", "memory"), "equal"),
        **dict.fromkeys(("flags", "gradients", "state", "retrace", "checkpoint"), "skipped"),
        **dict.fromkeys(("routing", "speed", "exact"), "skipped"),
    }
    assert surprises(found, **stated) == {}
    assert (str(case.mesh), case.placement.requested_mesh) == ("fsdp2.tensor2-auto", "fsdp4.tensor2-auto")


@pytest.mark.long
@needs_compiler
def test_an_unproved_case_stays_open_and_blocks():
    layouts = select(llama2.PAIR.cases({}), ["llama2-scan-against-unroll-nnx/train_step"])
    (case,) = place(layouts, find("aot:v5p:2x2x1"))
    result = run_case(case, Session(), ("values",))
    says = "not compared: not proved, and aot:v5p:2x2x1 runs nothing; run the case on cpu as well"
    assert (str(result.channels["values"].verdict), result.channels["values"].detail) == ("open", says)
    assert result.verdict == "open" and result.sentence() == f"{case.id}: values open: {says}"


@pytest.mark.slow
@needs_compiler
def test_a_proof_counts_on_backends_that_run_nothing_also_if_paranoid():
    (case,) = place([case for case in smoke() if "/forward" in case.id], find("aot:v5p:2x2x1"))
    assert run_case(case, Session(paranoid=True), ("values",)).verdict == "passed"


@pytest.mark.long
@needs_compiler
def test_a_candidate_of_equal_structure_and_other_numbers_is_no_parity(shell, tmp_path):
    """Its loops, collectives and memory agree; only a run could show the difference, and nothing runs."""
    example = (REPO / "docs" / "examples" / "foreign_mlp.py").read_text()
    wrong = example.replace("self.up(x)", "(self.up(x) * 1.01)")
    assert wrong != example
    (tmp_path / "other.py").write_text(wrong)
    (tmp_path / "pyproject.toml").write_text('[tool.parity]\npairs = ["other:PAIR"]\n')
    ended = shell("run", "mlp/forward", "--backend", "aot:v5p:2x2x1", "--json", "r.json", cwd=tmp_path)
    report = json.loads((tmp_path / "r.json").read_text())
    channels = report["cases"][0]["channels"]
    assert ended.code == 1 and "1 open" in ended.out and ", open," in ended.out
    assert report["cases"][0]["verdict"] == "open" and report["summary"]["open"] == 1
    assert (channels["program"]["verdict"], channels["values"]["verdict"]) == ("unproved", "open")
    assert "values open: not compared: not proved" in ended.out


@needs_compiler
@pytest.mark.long
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_the_twins_are_the_same_to_the_tpu_compiler(topology):
    bench, cases = Session(), place(smoke(), find(f"aot:{topology}"))
    assert len(cases) == 6
    for case in cases:
        channels = run_case(case, bench, ("program", "loops", "collectives", "memory")).channels
        structure = {name: channels[name].verdict for name in ("loops", "collectives", "memory")}
        assert set(structure.values()) == {Verdict.EQUAL}, (case.id, structure)
        assert not channels["collectives"].detail.startswith("0 moving")
        assert "optimised" in channels["loops"].detail
        (temp,) = (row for row in channels["memory"].tables["memory"] if row["quantity"] == "temp")
        assert temp["candidate"] <= 1.02 * temp["reference"]


@needs_compiler
@pytest.mark.long
def test_workers_compile_side_by_side(shell, tmp_path):
    """Under xdist two processes hold libtpu at the same time, and the report has every case."""
    pytest.importorskip("xdist")
    chosen = ("llama2-scan/forward", "llama2-unroll/forward")
    (tmp_path / "report").mkdir()
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "parity.plugin", "-m", "parity", "-n", "2"),
            *(word for id in chosen for word in ("--parity-select", id)),
            *("--parity-backend", "aot:v5p:2x2x1", "--parity-report=report"),
        ],
        cwd=tmp_path,
        env=shell.environment(REPO),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "libtpu" not in ended.stdout + ended.stderr
    record = json.loads((tmp_path / "report" / "parity.json").read_text())
    assert [case["backend"] for case in record["cases"]] == ["aot:v5p:2x2x1"] * 2


@needs_compiler
@pytest.mark.long
def test_a_compile_beyond_its_limits_is_an_error_of_its_case_and_the_run_goes_on(command, tmp_path):
    chosen = [f"llama2-scan/{program}@fsdp4.tensor2-auto" for program in ("forward", "grad")]
    options = ("--backend", "aot:v5p:2x2x1", "--workers", "1", "--json", "r.json")
    project = '[tool.parity]\npairs = ["parity.matrix.llama2:PAIR"]\ncache = ""\n'
    for limit, says in (("compile-seconds = 0.1", "exceeded 0.1 s"), ("compile-gib = 0.2", "GiB of host")):
        (tmp_path / "pyproject.toml").write_text(project + limit)
        ended = command("run", *chosen, *options)
        cases = json.loads((tmp_path / "r.json").read_text())["cases"]
        assert ended.code == 1 and [case["verdict"] for case in cases] == ["error", "error"]
        assert all(case["channels"]["values"]["verdict"] == "proved" for case in cases)
        for case in cases:
            ((where, message),) = [
                (finding["where"], finding["candidate"])
                for channel in case["channels"].values()
                for finding in channel["findings"]
            ]
            assert where == "linen llama2-scan, compile"
            assert message.startswith("CompileError: compile for aot:v5p:2x2x1 exceeded") and says in message


@pytest.mark.long
@needs_compiler
def test_flags_that_end_the_compiler_are_shown(shell, tmp_path):
    ended = shell(
        "run", "smoke", "--backend", "aot:v5p:2x2x1", cwd=tmp_path, LIBTPU_INIT_ARGS="--xla_nonsense=3"
    )
    assert (ended.code, ended.out) == (1, "") and "Unknown command line flag 'xla_nonsense'" in ended.err


@needs_compiler
def test_a_program_compiled_elsewhere_has_its_shardings():
    backend, spec = find("aot:v5e:2x2"), MeshSpec.parse("fsdp2.tensor2")
    with backend.context(spec):
        mesh = backend.mesh(spec)
        rows, whole = (jax.NamedSharding(mesh, axes) for axes in (jax.P("fsdp", "tensor"), jax.P()))
        x = jax.ShapeDtypeStruct((16, 8), jnp.float32, sharding=rows)
        key = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 4))
        key = jax.ShapeDtypeStruct(key.shape, key.dtype, sharding=jax.NamedSharding(mesh, jax.P("fsdp")))

        def step(unused, x, key):
            return {"x": x * 2, "sum": x.sum(), "key": key}

        jitted = jax.jit(step, out_shardings={"x": rows, "sum": whole, "key": None})
        made = backend.start(backend.lower(jitted.trace(x, x, key)))()
    (unused, x_at, key_at), _ = made.input_shardings
    assert unused is None and x_at.is_equivalent_to(rows, 2) and not x_at.is_equivalent_to(whole, 2)
    assert key_at.is_equivalent_to(key.sharding, 1)
    assert made.output_shardings["x"].is_equivalent_to(rows, 2)
    assert made.output_shardings["sum"].is_equivalent_to(whole, 0)
    assert made.memory_analysis()["temp_size_in_bytes"] >= 0 < made.cost_analysis()["flops"]


@needs_compiler
def test_grouped_products_of_stages_compile():
    """libtpu compiles no grouped product that is batched over stages."""
    backend, spec = find("aot:v5p:2x2x1"), MeshSpec.parse("stage2.fsdp2")
    shapes = ((2, 64, 16), "float32"), ((2, 4, 16, 32), "float32"), ((2, 4), "int32")
    with backend.context(spec):
        stages = jax.NamedSharding(backend.mesh(spec), jax.P("stage"))
        arguments = [jax.ShapeDtypeStruct(*shape, sharding=stages) for shape in shapes]

        def stage(x, weights, rows):
            local = jax.shard_map(
                jax.grad(lambda *arguments: grouped_product(*arguments).sum(), argnums=(0, 1)),
                in_specs=(jax.P(),) * 3,
                out_specs=(jax.P(),) * 2,
                check_vma=False,
            )
            return local(x, weights, rows)

        traced = jax.jit(jax.vmap(stage, spmd_axis_name="stage")).trace(*arguments)
        text = backend.start(backend.lower(traced))().as_text()
    assert "estimated_cycles" in text


@pytest.mark.long
@needs_compiler
def test_both_sides_compile_at_once(monkeypatch):
    """Both compilations begin before either is awaited."""
    seen = []
    start = AheadOfTime.start

    def watched(self, lowered):
        wait = start(self, lowered)
        seen.append("begun")
        return lambda: (seen.append("waited"), wait())[1]

    monkeypatch.setattr(AheadOfTime, "start", watched)
    (case,) = place([case for case in smoke() if "/forward" in case.id], find("aot:v5p:2x2x1"))
    run_case(case, Session(), ("loops", "memory"))
    assert seen == ["begun", "begun", "waited", "waited"]


@pytest.mark.long
@needs_compiler
def test_a_second_run_of_a_case_compiles_nothing(monkeypatch, tmp_path):
    (case,) = place([case for case in smoke() if "/forward" in case.id], find("aot:v5p:2x2x1"))
    resources = Resources(workers=1, cache=tmp_path)

    def asked(*arguments):
        raise AssertionError("asked the compiler")

    def before(number):
        if number == 1:
            monkeypatch.setattr(Pool, "submit", asked)
        if number == 2:
            monkeypatch.setenv("LIBTPU_INIT_ARGS", "--xla_tpu_other=1")
        return Session(backend=find("aot:v5p:2x2x1", Compiler(resources)))

    # In one loop, because the call site is part of a program's locations, and these are part of the key.
    first, again, stale = [run_case(case, before(number), ("loops", "memory")) for number in range(3)]
    assert again.channels == first.channels and again.verdict == "passed"
    assert "asked the compiler" in stale.sentence()


@pytest.mark.slow
@needs_compiler
def test_a_compiler_that_dies_is_an_error_of_its_side_and_other_channels_still_run(monkeypatch, tmp_path):
    (tmp_path / "dying.py").write_text(
        "import os, sys\n\n"
        "def die(request, notify):\n"
        "    print('F0000 register allocator: out of luck', file=sys.stderr, flush=True)\n"
        "    os.abort()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    start = Compiler.start
    monkeypatch.setattr(Compiler, "start", lambda self, _, request: start(self, "dying:die", request))
    (case,) = place([case for case in smoke() if "/forward" in case.id], find("aot:v5p:2x2x1"))
    result = run_case(
        case, Session(backend=find("aot:v5p:2x2x1", Compiler(Resources(workers=1, cache=None))))
    )  # its worker has the path above
    assert result.verdict == "error" and result.channels["values"].verdict is Verdict.PROVED
    assert (
        "linen llama2-scan, compile: CompileError: compile for aot:v5p:2x2x1 "
        "died with signal 6 (SIGABRT): F0000 register allocator: out of luck"
    ) in result.sentence()
