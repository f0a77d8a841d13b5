"""`config` and `size` on decoders with a planted bug; independent runs check their findings."""

import tomllib
from pathlib import Path

import pytest

from parity.bisect.axis import Question, Status
from parity.bisect.report import bisect_case
from parity.bisect.size import MESH, sized

MUTANTS = Path(__file__).parents[2] / "mutants"
HOME = "fsdp4.tensor2-auto"


@pytest.fixture
def planted(planting, tmp_path):
    """``planted(table, id, case, pair)`` is the case with a bug of a table of plants."""

    def case(table, id, name, pair=""):
        bugs = tomllib.loads((MUTANTS / f"{table}.toml").read_text())["mutant"]
        edits = next(bug["edits"] for bug in bugs if bug["id"] == id)
        files: dict = {}
        for edit in edits:
            files.setdefault(edit["file"].removeprefix("models_nnx/"), []).append((edit["old"], edit["new"]))
        return planting.case(planting.copy(tmp_path, files), f"{name}@{HOME}", pair)

    return case


def off(case, parts):
    settings = {name: text for part in parts for name, text in part.items()}
    return case.explore.with_settings(settings) if settings else case


PLANTS = {
    "one setting": (
        ("operations", "tied-head-transposed-twice", "llama2-scan-tied/forward"),
        [{"head": "untied"}],
    ),
    "two settings": (
        ("llama2", "dropout-key-not-split-by-layer", "llama2-scan-dropout/grad"),
        [{"layout": "unrolled"}, {"dropout": "0.0"}],
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("plant, needed", PLANTS.values(), ids=PLANTS)
def test_the_settings_of_a_decoder_that_a_failure_needs(plant, needed, planted):
    case = planted(*plant)
    report = bisect_case(case, ("config",))
    (config,) = report.axes
    assert config.facts["needed"] == needed, config.sentence
    assert report.signature is not None
    again = Question(case=case, signature=report.signature)
    others = [part for part in case.explore.ablations if part not in needed]
    assert again.status(off(case, others)) is Status.FAILS  # the rest is enough
    assert all(
        again.status(off(case, [*others, part])) is Status.PASSES for part in needed
    )  # and all is needed


@pytest.mark.long
def test_a_decoder_that_needs_no_setting_shrinks_and_fails_in_the_same_way(planted):
    case = planted("llama2", "norm-epsilon-doubled", "llama2-scan/forward")
    report = bisect_case(case, ("config", "size"))
    config, size = report.axes
    assert config.facts["needed"] == [] and "under the plainest configuration too" in config.sentence
    facts = size.facts
    assert facts["sizes"]["batch"] == facts["sizes"]["sequence"] == 2, size.sentence
    small = sized(case, {**facts["fields"], 0: 2, 1: 2, MESH: 1})
    assert report.signature is not None
    assert Question(case=case, signature=report.signature).status(small) is Status.FAILS
