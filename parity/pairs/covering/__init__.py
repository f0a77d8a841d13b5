"""Every option with every other: a covering array over all options of the decoders, mostly by proof."""

from collections.abc import Mapping

from parity.matrix import Case, Pair
from parity.pairs.cases import Variant, twins
from parity.pairs.covering.configs import SPACES, recipe
from parity.pairs.covering.rows import read_rows
from parity.pairs.vary import varied
from parity.verdicts import Verdict

__all__ = ["PAIR"]

SHAPE = (32, 40)
"""Rows that every mesh, half a batch and four microbatches divide."""

BY_PROOF = {
    "rng": "by proof alone; the cases that run compare draws as well",
    "retrace": "by proof alone; the cases that run are traced again as well",
}


def cases(settings: Mapping[str, str]) -> list[Case]:
    """Returns a case per chosen row.

    Args:
        settings: config fields to override in every case.

    Raises:
        ConfigError: a setting breaks a rule.
    """
    chosen = read_rows()
    matrix = []
    for space in SPACES:
        for name, row in chosen[space.name].items():
            made = recipe(space.factors, row)
            config, train = varied(made.config, made.train, settings)
            variant = Variant(f"covering-{name}", config, train, SHAPE)
            matrix.append(
                twins(
                    variant, made.program, str(made.mesh), lowest=Verdict.PROVED, not_applicable=BY_PROOF
                )
            )
    return matrix


PAIR = Pair(name="covering", about="every option of the decoders with every other, by proof", cases=cases)
