"""The command line: its output, the files that it writes, and the exit code of every kind of end."""

import json
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from expected import surprises
from toys import write_project

import parity.run.schedule
from parity.channels import ALL
from parity.cli.options import echo
from parity.run.record import VERDICTS

# {nnx} is the NNX forward, {top} runs at import, {options} go to the pair.
TWINS = """
{top}

class Changed(Nnx):
    def __call__(self, x):
        return {nnx}

def changed(out, batch):
    {loss}
    return loss(out, batch)

PAIR = pair("toy", nnx=Changed, loss=changed, {options})
"""
SOUND = "jnp.tanh(self.dense(x))"
WRONG = "jnp.sin(self.dense(x))"
IDS = [f"toy/{program}@single" for program in ("forward", "grad", "train_step")]


def project(folder, nnx=SOUND, top="", loss="", options=""):
    """A user's project in ``folder``."""
    return write_project(
        folder, "toy_twins", TWINS.format(nnx=nnx, top=top, loss=loss, options=options), "PAIR"
    )


def fits(text, width=100):
    """Returns True if the table, which is everything before the closing line, fits."""
    lines = text.splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("case "))
    end = next(number for number, line in enumerate(lines) if re.match(r"(\d+ \w+, )*\d+ \w+ in \d+ s", line))
    return head < end and max(len(line) for line in lines[head:end]) <= width


# --- runs ---


@pytest.mark.slow
def test_a_run_that_passes(command, tmp_path):
    ended = command("run", "--json", "report.json", cwd=project(tmp_path))
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[:3] == [f"[{number}/3] {id} passed" for number, id in enumerate(IDS, 1)]
    assert fits(ended.out) and lines[-1] == "report: report.json"
    assert "3 passed in " in ended.out and "PARTIAL" not in ended.out


@pytest.mark.slow
def test_a_run_that_differs_exits_1_and_names_the_leaves(command, tmp_path):
    ended = command("run", "toy/grad", cwd=project(tmp_path, nnx=WRONG))
    assert (ended.code, ended.err) == (1, "")
    assert fits(ended.out) and "1 failed in " in ended.out
    assert "toy/grad@single  " in ended.out and "gradients: 2 of 2 leaves differ" in ended.out
    assert "params/dense/kernel[" in ended.out and "toy_twins.py" in ended.out


@pytest.mark.slow
def test_a_side_that_crashes_is_a_verdict_of_its_case_alone(command, tmp_path):
    crash = 'jax.debug.callback(print) if batch["y"].ndim == 2 else None; raise ZeroDivisionError("no luck")'
    ended = command("run", "--json", "report.json", cwd=project(tmp_path, loss=crash))
    assert (ended.code, ended.err) == (1, "")
    verdicts = {
        case["id"]: case["verdict"] for case in json.loads((tmp_path / "report.json").read_text())["cases"]
    }
    assert verdicts == dict(zip(IDS, ["passed", "error", "error"], strict=True))
    assert "linen toy, trace: ZeroDivisionError: no luck" in ended.out
    assert "Traceback" not in ended.out


@pytest.mark.slow
def test_the_json_report_has_the_schema(command, tmp_path):
    command("run", "--json", "report.json", "toy/forward", cwd=project(tmp_path, nnx=WRONG))
    report = json.loads((tmp_path / "report.json").read_text())
    assert list(report) == ["schema", "environment", "cases", "summary", "numbers_only", "seconds"]
    assert report["schema"] == 1 and list(report["summary"]) == list(VERDICTS)
    assert report["summary"]["failed"] == 1 and sum(report["summary"].values()) == 1
    assert isinstance(report["seconds"], float)
    assert {"python", "packages", "flags", "devices", "commit"} <= set(report["environment"])
    assert {"jax", "jaxlib", "flax"} <= set(report["environment"]["packages"])
    (case,) = report["cases"]
    assert list(case) == [
        "id",
        "reference",
        "candidate",
        "program",
        "mesh",
        "backend",
        "verdict",
        "channels",
        "seconds",
    ]
    assert list(case["channels"]) == list(ALL)
    for channel in case["channels"].values():
        assert list(channel)[:3] == ["verdict", "detail", "findings"]
        assert set(channel) <= {"verdict", "detail", "findings", "measures", "tables"}
    (leaf,) = case["channels"]["values"]["tables"]["leaves"]
    assert leaf["rung"] == "failed" and leaf["floors"] > 10 and leaf["leaf"].startswith("outputs")
    assert {"trace", "lower", "compile", "execute", "other"} <= set(case["seconds"])
    wheres = [finding["where"] for finding in case["channels"]["values"]["findings"]]
    assert wheres and wheres[0].startswith("outputs[")


@pytest.mark.slow
def test_paranoid_runs_proved_cases(command, tmp_path):
    ended = command("run", "toy/forward", "--paranoid", "--json", "r.json", cwd=project(tmp_path))
    channels = json.loads((tmp_path / "r.json").read_text())["cases"][0]["channels"]
    found = {name: channels[name]["verdict"] for name in ("program", "values", "loops", "memory")}
    assert ended.code == 0
    assert found == {"program": "proved", "values": "bitwise", "loops": "equal", "memory": "equal"}


@pytest.mark.long
def test_paranoid_on_the_scanned_decoder_finds_equal_bits_loops_and_memory(command, tmp_path):
    chosen = [f"llama2-scan/{program}@fsdp4.tensor2-auto" for program in ("forward", "grad", "train_step")]
    ended = command("run", *chosen, "--paranoid", "--json", "r.json", cwd=tmp_path)
    assert ended.code == 0, ended.out
    cases = json.loads((tmp_path / "r.json").read_text())["cases"]
    assert [case["id"] for case in cases] == chosen
    for case in cases:
        found = {name: channel["verdict"] for name, channel in case["channels"].items()}
        values = {found.pop(name) for name in ("values", "gradients", "state")} - {"skipped"}
        assert (case["verdict"], values) == ("passed", {"bitwise"})
        stated = {
            **dict.fromkeys(("program", "rng"), "proved"),
            **dict.fromkeys(("dots", "memory", "collectives"), "equal"),
            **dict.fromkeys(("exact", "routing", "speed", "flags", "checkpoint"), "skipped"),
            "retrace": "equal" if case["program"] == "train_step" else "skipped",
        }
        assert surprises(found, **stated) == {}


@pytest.mark.long
def test_texts_are_printed_as_they_are(capsys):
    echo("model.py:100: [red]")
    assert capsys.readouterr().out == "model.py:100: [red]\n"


@pytest.mark.long
def test_a_module_runs_the_command_line(shell, tmp_path):
    ended = shell("run", "toy/forward", cwd=project(tmp_path))
    assert (ended.code, ended.err) == (0, "") and ended.out.startswith("[1/1] toy/forward@single passed")


# --- list, map, doctor, help ---


@pytest.mark.slow
def test_list_shows_pairs_variants_programs_and_meshes(command, tmp_path):
    ended = command("list", cwd=tmp_path)
    assert (ended.code, ended.err) == (0, "")
    assert max(map(len, ended.out.splitlines())) <= 100
    assert re.search(r"^llama2-scan +fsdp4.tensor2-auto +forward grad train_step", ended.out, re.MULTILINE)
    total = int(re.search(r"^(\d+) cases; backends: .*cpu", ended.out, re.MULTILINE)[1])
    fewer = command("list", "llama2-scan", cwd=tmp_path)
    assert 3 < int(re.search(r"^(\d+) cases", fewer.out, re.MULTILINE)[1]) < total


def test_map_shows_the_leaves_of_a_user_s_pair(command, tmp_path):
    ended = command("map", "toy", cwd=project(tmp_path))
    assert (ended.code, ended.err) == (0, "")
    assert "dense/kernel  identity; by name; proof" in ended.out
    assert "8 reference and 8 candidate leaves in 8 entries: total, one-to-one" in ended.out


GUESSED = """
import jax, jax.numpy as jnp, numpy as np, parity
from flax import linen, nnx

class Linen(linen.Module):
    @linen.compact
    def __call__(self, x):
        w1, w3 = (self.param(name, linen.initializers.normal(), (8, 6)) for name in ("w1", "w3"))
        return jax.nn.silu(x @ w1) * (x @ w3)

class Nnx(nnx.Module):
    def __init__(self, rngs):
        self.a, self.b = (nnx.Param(rngs.params.normal((8, 6))) for _ in range(2))
    def __call__(self, x):
        return jax.nn.silu(x @ self.a[...]) * (x @ self.b[...])

def inputs(seed):
    return {"x": np.random.default_rng(seed).standard_normal((4, 8), np.float32)}

PAIR = parity.twins("gated", linen=Linen, nnx=Nnx, inputs=inputs, loss=lambda out, batch: (out**2).mean(), RULES)
"""


@pytest.mark.slow
def test_map_prints_guesses_as_rules_that_state_them(command, tmp_path):
    (tmp_path / "gated.py").write_text(GUESSED.replace(", RULES", ""))
    ended = command("map", "gated", "--pair", "gated:PAIR", cwd=tmp_path)
    printed = ended.out[ended.out.index("weight_rules=(") :]
    assert "parity.Rule(reference=('w1',), candidate=('a',))" in printed, ended.out
    (tmp_path / "stated.py").write_text(GUESSED.replace("RULES", printed))
    ended = command("map", "gated", "--pair", "stated:PAIR", cwd=tmp_path)
    assert ended.code == 0 and "by rule" in ended.out and "weight_rules" not in ended.out


@pytest.mark.slow
@pytest.mark.parametrize("how", ["run", "prove", "map"])
def test_a_rule_that_matches_nothing_is_wrong_usage_and_blocks_no_other_pair(command, tmp_path, how):
    rules = "weight_rules=[parity.Rule(reference=('dense/kernal',), candidate=('dense/kernel',))]"
    folder = project(tmp_path, options=rules, top="import parity")
    ended = command(how, "toy/forward", cwd=folder)
    assert ended.code == 2, ended.out + ended.err
    assert "nearest: in the reference dense/kernel float32" in re.sub(r"\s+", " ", ended.out + ended.err)


@pytest.mark.slow
@pytest.mark.parametrize(("other", "code"), [(SOUND, 2), (WRONG, 1)])
def test_a_wrong_rule_blocks_no_other_pair_and_hides_no_difference(command, tmp_path, other, code):
    rules = "weight_rules=[parity.Rule(reference=('dense/kernal',), candidate=('dense/kernel',))]"
    first = TWINS.format(nnx=SOUND, top="import parity", loss="", options=rules)
    second = TWINS.format(nnx=other, top="", loss="", options="").replace(
        'PAIR = pair("toy"', 'OTHER = pair("other"'
    )
    folder = write_project(tmp_path, f"two_twins_{code}", first + second, "PAIR", "OTHER")
    ended = command("run", "*/forward@single", cwd=folder)
    assert ended.code == code and ("1 passed" in ended.out) is (code == 2), ended.out + ended.err


def test_map_of_a_side_that_crashes_is_no_failure_of_the_harness(command, tmp_path):
    ended = command("map", "toy", cwd=project(tmp_path, nnx="x @ jnp.ones(99)"))
    assert ended.code == 1, ended.err
    assert ended.err.startswith("parity: nnx toy: trace failed: TypeError: ")
    assert "Traceback" not in ended.err


def test_doctor_shows_versions_and_devices(command, tmp_path):
    ended = command("doctor", cwd=tmp_path)
    assert (ended.code, ended.err) == (0, "")
    assert re.search(r"^jax +\d+\.\d+", ended.out, re.MULTILINE) and "8 simulated" in ended.out


def test_help_and_no_command(command, tmp_path):
    assert command("--help", cwd=tmp_path).code == 0
    ended = command(cwd=tmp_path)
    assert (ended.code, ended.out) == (2, "")
    assert all(name in ended.err for name in ("run", "list", "map", "doctor"))


# --- bad input: one line, exit 2 ---


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "lama2"], ["selector 'lama2': matches none of", "did you mean llama2"]),
        (["run", "llama2-scan/train_stp"], ["selector 'llama2-scan/train_stp'", "llama2-scan/train_step@"]),
        (["run", "llama2", "nonsense*"], ["selector 'nonsense*'", "`parity list` shows all"]),
        (["list", "lama2"], ["selector 'lama2'"]),
        (["map", "lama2"], ["selector 'lama2'"]),
        (["run", "--backend", "cpv"], ["backend 'cpv': expected one of", "did you mean cpu?"]),
        (
            ["run", "--set", "embed=49"],
            ["config field embed: got 49, expected a multiple of attention.heads=6"],
        ),
        (["run", "--set", "embd=48"], ["embd", "expected a field of ModelConfig", "norm_epsilon"]),
        (["run", "--set", "attention.headz=3"], ["attention.headz", "heads, kv_heads"]),
        (["run", "--set", "embed=wide"], ["embed", "'wide'", "int"]),
        (["run", "--set", "embed"], ["--set 'embed': expected FIELD=VALUE"]),
        (["run", "--set", "=4"], ["--set '=4': expected FIELD=VALUE"]),
        (["run", "--json", "missing/r.json"], ["report path missing/r.json: folder missing does not exist"]),
        (["run", "--json", "."], ["report path .: is a folder", "expected a writable file name"]),
        (["run", "--json", "/proc/r.json"], ["report path /proc/r.json: cannot make a file in /proc"]),
        (["run", "--pair", "no_such_module:PAIR"], ["pair 'no_such_module:PAIR'", "check the name"]),
        (["run", "--pair", "json:dumps"], ["got function, expected parity.Pair"]),
        (["run", "--pair", "json"], ["expected module:ATTRIBUTE"]),
        (["run", "--no-such-option"], ["No such option", "see parity --help"]),
        (["walk"], ["No such command 'walk'", "see parity --help"]),
        (["map"], ["Missing argument", "see parity --help"]),
    ],
    ids=lambda value: (
        " ".join(value) if isinstance(value, list) and value[0] in {"run", "list", "map"} else ""
    ),
)
def test_bad_input_is_one_line_and_exit_2(command, tmp_path, arguments, words):
    asked = ["--builtin"] if arguments[0] == "run" else []  # no project defines pairs
    ended = command(*arguments, *asked, cwd=tmp_path)
    assert (ended.code, ended.out) == (2, ""), ended
    assert ended.err.startswith("parity: ") and ended.err.count("\n") == 1
    assert [word for word in words if word not in ended.err] == [], ended.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[tool.parity\n", "pyproject.toml: "),
        ('[tool.parity]\npair = "toy_twins:PAIR"\n', "[tool.parity]: got"),
        ("[tool.parity]\npairs = []\n", "[tool.parity]: pairs: got []"),
        ('[tool.parity]\npairs = ["toy_twin:PAIR"]\n', "No module named 'toy_twin'"),
        ('[tool.parity]\npairs = ["toy_twins:TWINS"]\n', "has no attribute 'TWINS'"),
        ('[tool.parity]\npairs = ["toy_twins:Linen"]\n', "expected parity.Pair"),
    ],
)
def test_bad_settings_are_one_line_and_exit_2(command, tmp_path, text, words):
    (project(tmp_path) / "pyproject.toml").write_text(text)
    ended = command("run", "--json", "report.json", cwd=tmp_path)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("parity: ") and ended.err.count("\n") == 1 and words in ended.err
    assert not (tmp_path / "report.json").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("meshes=['data64-auto']", "mesh data64-auto: needs 64 devices, found 8 (cpu)"),
        ("meshes=['data8-automatic']", "got mode 'automatic', expected one of auto, explicit"),
        ("meshes=['8']", "mesh '8': expected distinct axes with sizes"),
        (
            "meshes=['fspd8-auto'], axis_rules=[('hidden', 'fsdp')]",
            "mesh fspd8-auto: got axis fspd, which no rule or leaf names; did you mean fsdp?",
        ),
    ],
)
def test_a_mesh_that_cannot_be_is_one_line_and_exit_2(command, tmp_path, options, words):
    ended = command("run", cwd=project(tmp_path, options=options))
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert words in ended.err and ended.err.startswith("parity: ")


@pytest.mark.long
def test_too_few_devices_for_the_builtin_meshes(shell, tmp_path):
    flags = "--xla_force_host_platform_device_count=2"
    ended = shell("run", "llama2-scan/forward", cwd=tmp_path, XLA_FLAGS=flags)
    assert (ended.code, ended.out) == (2, "")
    assert "mesh fsdp4.tensor2-auto: needs 8 devices, found 2 (cpu)" in ended.err
    assert ended.err.count("\n") == 1


def test_a_failure_of_the_harness_is_exit_3_with_its_traceback(command, tmp_path, monkeypatch):
    def broken(*arguments, **options):
        raise RuntimeError("not the user's fault")

    monkeypatch.setattr(parity.run.schedule, "case_runner", broken)
    ended = command("run", cwd=project(tmp_path))
    assert ended.code == 3
    assert "Traceback" in ended.err and "RuntimeError: not the user's fault" in ended.err
    assert ended.err.splitlines()[-1].startswith("parity: the harness itself failed")


# --- Ctrl-C ---


def wait_for(path: Path, process: subprocess.Popen, seconds=60.0):
    end = time.monotonic() + seconds
    while not path.exists():
        assert process.poll() is None and time.monotonic() < end, process.communicate()
        time.sleep(0.02)


def interrupt(shell, folder, *arguments, ending=signal.SIGINT):
    """Runs until the project makes the file ``now``, then interrupts; returns code, output and report."""
    process = shell.start("run", "--json", "report.json", *arguments, cwd=folder)
    try:
        wait_for(folder / "now", process)
        time.sleep(0.3)
        process.send_signal(ending)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    report = folder / "report.json"
    return process.returncode, out, err, json.loads(report.read_text()) if report.exists() else None


NOW = 'pathlib.Path("now").touch()'


@pytest.mark.long
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_tracing_leaves_a_partial_report(shell, tmp_path, ending):
    slow = f"{NOW}; time.sleep(30)"
    code, out, err, report = interrupt(shell, project(tmp_path, loss=slow), ending=ending)
    assert (code, err) == (130, "")
    assert out.splitlines()[0] == "[1/3] toy/forward@single passed"
    assert "PARTIAL: 1 of 3 cases finished before the run was interrupted" in out
    assert report["partial"] == {"planned": 3, "finished": 1}
    assert [case["id"] for case in report["cases"]] == IDS[:1] and report["summary"]["passed"] == 1
    assert not list(tmp_path.glob(".report*")), "a scrap of the report is left"


@pytest.mark.long
def test_ctrl_c_while_compiling_leaves_a_partial_report(shell, tmp_path):
    top = f"""
compile = jax.stages.Lowered.compile

def announced(self, **options):
    {NOW}
    return compile(self, **options)

jax.stages.Lowered.compile = announced
"""
    long = f"{SOUND} + sum(jnp.sin(x @ x.T * i).sum() * 0 for i in range(500))"
    code, out, err, report = interrupt(shell, project(tmp_path, top=top, nnx=long), "toy/forward")
    assert (code, err) == (130, ""), "a compiler thread at work must not crash the end"
    assert "nothing ran" in out and "PARTIAL: 0 of 1 cases finished" in out
    assert report["partial"] == {"planned": 1, "finished": 0} and report["cases"] == []


@pytest.mark.long
def test_ctrl_c_before_the_first_case_ends_quietly(shell, tmp_path):
    top = f"{NOW}\ntime.sleep(30)"
    code, out, err, report = interrupt(shell, project(tmp_path, top=top))
    assert (code, out, err, report) == (130, "", "", None)
