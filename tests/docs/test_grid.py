"""The grid of a page is what the records have."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import grid


def case(id, program="proved", backend="cpu", verdict="passed", **channels):
    verdicts = {"program": program, **channels}
    return {
        "id": id,
        "backend": backend,
        "verdict": verdict,
        "channels": {name: {"verdict": word} for name, word in verdicts.items()},
    }


def test_variants_with_equal_verdicts_share_a_row():
    names = ("a-scan", "a-unroll", "b-scan")
    rows = grid.grid([case(f"{name}/forward@single") for name in names]).splitlines()
    assert rows == ["- forward proved (`single`): `a`, `b-scan`"]


def test_a_failure_names_its_channels_and_its_place():
    failing = case(
        "a/train_step@fsdp4", backend="aot:v5p:2x2x1", verdict="failed", tree="failed", rng="equal"
    )
    assert grid.grid([failing]) == "- train step **failed**: tree (`fsdp4 on aot:v5p:2x2x1`): `a`\n"


def test_a_pass_without_a_proof_is_not_called_proved():
    assert "forward passed (`m`)" in grid.grid([case("a/forward@m", program="unproved")])


def test_a_later_record_replaces_the_grid_of_the_page(tmp_path):
    page, records = tmp_path / "page.md", [tmp_path / "old.json", tmp_path / "new.json"]
    page.write_text("before\n<!-- measured: grid -->\nstale\n<!-- end -->\nafter\n")
    for record, one in zip(
        records, [case("a/forward@m"), case("a/forward@m", program="unproved")], strict=True
    ):
        record.write_text(json.dumps({"cases": [one]}))
    assert grid.main(str(page), *map(str, records)) == 0
    text = page.read_text()
    assert text.startswith("before\n<!-- measured") and text.endswith("<!-- end -->\nafter\n")
    assert "passed (`m`)" in text and "proved" not in text and "stale" not in text
