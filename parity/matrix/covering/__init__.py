"""Combinations of all options: a covering array over the options of the decoders, mostly compared by proof."""

import dataclasses
from collections.abc import Mapping

from parity.cases.case import Case, Pair
from parity.matrix.cases import ONE_STRUCTURE, twins
from parity.matrix.covering.configs import SPACES, read_rows, recipe

__all__ = ["PAIR"]

RUN_EVERY = 16
"""One case in this many is also compiled and run, even if proved: the last one without the factor `HEAVY`."""
HEAVY = ("repeats", "repeats")
"""The value that makes a case take minutes to compile: a pipeline with several repeats."""

BY_PROOF = {
    "rng": "by proof alone; the cases that run compare draws as well",
    "retrace": "by proof alone; the cases that run are traced again as well",
}
RUN = dataclasses.replace(ONE_STRUCTURE, paranoid=True)
PROVED = dataclasses.replace(ONE_STRUCTURE, not_applicable=BY_PROOF)


def cases(settings: Mapping[str, str]) -> list[Case]:
    """Returns a case per chosen row."""
    chosen = read_rows()
    matrix = []
    for space, factors in SPACES.items():
        run = _run(list(chosen[space].items()))
        for name, row in chosen[space].items():
            variant, program, mesh = recipe(factors, row)
            variant = dataclasses.replace(variant.override(settings), name=f"covering-{name}")
            matrix.append(twins(variant, program, mesh, RUN if name in run else PROVED))
    return matrix


def _run(rows: list[tuple[str, Mapping[str, str]]]) -> set[str]:
    groups = (rows[start : start + RUN_EVERY] for start in range(0, len(rows) - RUN_EVERY + 1, RUN_EVERY))
    light = ([name for name, row in group if HEAVY not in row.items()] for group in groups)
    return {names[-1] for names in light}


PAIR = Pair(
    name="covering",
    about="every option of the decoders with every other, by proof",
    cases=cases,
)
