"""The tables of ``parity bisect``."""

from parity.cli.bisect import _show
from parity.compare.origin.result import SearchResult
from parity.run.record import Bisect


def test_no_cell_is_cut_outside_a_terminal(capsys):
    place = f"{'long/' * 60}model.py:1 in step"
    search = SearchResult(axis="op", sentence="b", head=("reference", "candidate"), rows=((place, place),))
    _show(Bisect(case="a", signature=None, ambiguous=False, sentence="a", axes=(search,)))
    assert capsys.readouterr().out.count(place) == 2
