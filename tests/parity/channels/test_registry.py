"""The registry: one declaration per channel, from which table, JSON and documentation follow."""

from pathlib import Path

from parity.channels import ALL, CHANNELS, Aspect, SettledByProof, of_aspect
from parity.report.table import COLUMNS

ENGINE = Path(__file__).parents[3] / "parity"


def test_every_channel_has_a_file_a_column_and_an_aspect():
    folder = ENGINE / "channels"
    assert all((folder / f"{name}.py").exists() for name in ALL)
    assert sorted(name for names in COLUMNS.values() for name in names) == sorted(ALL)
    assert sorted(name for aspect in Aspect for name in of_aspect(aspect)) == sorted(ALL)


def test_a_backend_that_runs_nothing_claims_no_run():
    """A proof alone settles the channels of values."""
    settled = {name for name, one in CHANNELS.items() if one.settled_by_proof is SettledByProof.ALWAYS}
    assert {*of_aspect(Aspect.VALUES)} <= settled
