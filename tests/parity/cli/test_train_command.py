"""``parity train``: losses step by step, exit codes, wrong input."""

import re

import pytest

from models_nnx.shared.config import ConfigError
from parity.builds.build import Flavour
from parity.matrix.training import Trainer, training


@pytest.mark.long
def test_both_twins_train_to_the_same_losses_and_learn(shell, tmp_path):
    ended = shell("train", "--steps", "4", cwd=tmp_path)
    rows = re.findall(r"^ +(\d+) +([\d.]+) +([\d.]+) +(\S+)$", ended.out, re.MULTILINE)
    assert (ended.code, ended.err) == (0, "")
    assert "4 layers, mesh stage2.fsdp2-auto" in ended.out and "equal bits in both twins" in ended.out
    assert [row[0] for row in rows] == ["1", "2", "3", "4"] and {row[3] for row in rows} == {"0"}
    assert float(rows[-1][1]) < float(rows[0][1]) - 1


@pytest.mark.slow
def test_losses_that_differ_are_a_difference(monkeypatch, capsys):
    import parity.matrix.training as module
    from parity.cli import main

    class Trainer:
        def __init__(self, flavour, run, resume):
            self.done, self.flavour = 0, flavour

        def advance(self):
            self.done += 1
            return 2.0 if self.done % 2 else 1.0 + (self.flavour is Flavour.NNX)

    monkeypatch.setattr(module, "Trainer", Trainer)
    monkeypatch.setattr("sys.argv", ["parity", "train", "--steps", "3"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert "1 of 3 steps differ" in capsys.readouterr().out


QUICK = (
    "--set",
    "pipeline=none",
    "--set",
    "layers=2",
    "--set",
    "dropout=0.1",
    "--rows",
    "4",
    "--length",
    "16",
)


@pytest.mark.long
def test_a_run_is_saved_by_one_twin_and_goes_on_in_the_other(command, tmp_path):
    train_words = ("train", "--family", "qwen3-8b", *QUICK)
    whole = command(*train_words, "--flavour", "linen", "--steps", "3", "--save", "kept", "--save-every", "2")
    assert (whole.code, whole.err) == (0, "")
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["step_00000002", "step_00000003"]
    resumed = command(
        *train_words,
        "--flavour",
        "nnx",
        "--steps",
        "1",
        "--resume",
        "kept/step_00000002",
    )
    assert (resumed.code, resumed.err) == (0, "")
    line = next(line for line in whole.out.splitlines() if line.startswith("   3 "))
    assert line in resumed.out.splitlines()
    taken = command(*train_words, "--steps", "3", "--save", "kept")
    assert (taken.code, taken.out.count("step")) == (2, 1)
    assert "--save kept: already has step 3, expected a folder without" in taken.err
    other = command(*train_words, "--steps", "1", "--resume", "kept", "--seed", "7")
    assert other.code == 2 and "got a run with seed 0, expected seed 7" in other.err
    (tmp_path / "kept" / "step_00000003" / "manifest.json").write_text("{")
    damaged = command(*train_words, "--steps", "1", "--resume", "kept")
    assert damaged.code == 2 and "damaged" in damaged.err and "restore an older checkpoint" in damaged.err


@pytest.mark.long
@pytest.mark.parametrize("folder", ["file", "file/run", "/proc/run"])
def test_a_folder_that_cannot_be_written_is_refused_before_the_first_step(command, tmp_path, folder):
    (tmp_path / "file").touch()
    ended = command(
        "train", "--family", "qwen3-8b", *QUICK, "--flavour", "nnx", "--steps", "2", "--save", folder
    )
    assert ended.code == 2 and ended.err.count("\n") == 1, ended.err
    assert f"--save {folder}: cannot be written to (" in ended.err and "name another folder" in ended.err
    assert ended.out.splitlines()[-1].split() == ["step", "nnx"]  # no step was made


@pytest.mark.long
def test_a_pipeline_on_an_explicit_mesh_trains_as_the_layers_in_sequence():
    settings = {"pipeline.repeats": "2", "pipeline.gather": "per_repeat", "pipeline.layers_per_stage": "1"}
    piped = training("llama2-7b", settings, "stage2.fsdp2-explicit", (16, 32))
    alone = training("llama2-7b", {"pipeline": "none", "layers": "4"}, None, (16, 32))
    assert piped.config.layers == alone.config.layers == 4
    first = [Trainer(Flavour.NNX, run).advance() for run in (piped, alone)]
    assert first[0] == pytest.approx(first[1], rel=0.05)  # other initial weights, as keys go by place


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--preset", "llama9"], "preset: got 'llama9'"),
        (["--set", "pipeline.microbatches=3"], "pipeline.microbatches: got 3"),
        (["--set", "pipeline=2"], "pipeline: got '2', expected none, or its fields"),
        (["--set", "layers=5"], "layers: got 5"),
        (["--set", "dropout"], "--set 'dropout': expected FIELD=VALUE"),
        (["--mesh", "fsdp8"], "expected an axis 'stage' of size 2"),
        (["--mesh", "stage2.fsdp64"], "needs 128 devices"),
        (["--rows", "6"], "got 6 rows for 4 microbatches, expected a multiple"),
        pytest.param(
            ["--rows", "4", "--set", "train.accumulation=3"],
            "got batches of [4] rows for 3 microbatches",
            marks=pytest.mark.long,
        ),
        (
            [
                "--mesh",
                "data2-explicit",
                "--rows",
                "6",
                "--set",
                "pipeline=none",
                "--set",
                "train.accumulation=2",
            ],
            "rows of a microbatch",
        ),
        (["--flavour", "torch"], "torch"),
        (["--steps", "0"], "--steps"),
        (["--resume", "nowhere"], "nowhere: got no checkpoint"),
    ],
)
def test_wrong_input_gets_one_line_and_exit_code_2(command, tmp_path, arguments, said):
    ended = command("train", *arguments, cwd=tmp_path)
    assert ended.code == 2
    assert said in ended.err and "Traceback" not in ended.err


def test_settings_reach_the_pipeline_the_step_and_the_model():
    run = training(
        "gemma2-9b", {"pipeline.repeats": "2", "train.accumulation": "2", "dropout": "0.1"}, None, (8, 32)
    )
    assert (run.config.staging.repeats, run.train.accumulation, run.config.dropout) == (2, 2, 0.1)
    assert run.config.layers == 2 * 2 * 2 * len(run.config.attention.cycle)
    with pytest.raises(ConfigError, match=r"one of per_iteration, once, per_repeat"):
        training("llama2-7b", {"pipeline.gather": "sometimes"}, None, (8, 32))


def test_predictors_and_replicas_are_requested_by_their_fields():
    run = training("llama2-7b", {"diloco.period": "6", "mtp.depth": "2"}, None, (8, 32))
    assert run.config.mtp and run.diloco and (run.config.mtp.depth, run.diloco.period) == (2, 6)
    assert str(run.mesh) == "replica2.stage2.fsdp2-auto" and "diloco.period=6" in run.title
    plain = training("deepseek3-671b", {"mtp": "none", "diloco": "none", "pipeline": "none"}, None, (8, 32))
    assert (plain.config.mtp, plain.diloco, str(plain.mesh)) == (None, None, "fsdp2-auto")
    with pytest.raises(ConfigError, match=r"got 'none and mtp\.depth', expected none, or its fields"):
        training("deepseek3-671b", {"mtp": "none", "mtp.depth": "2"}, None, (8, 32))
