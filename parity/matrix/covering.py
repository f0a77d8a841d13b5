"""Combinations of all options: a covering array over the options of the decoders, mostly compared by proof.

``python tests/campaigns matrix.covering`` chooses the combinations and writes them as configs.
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from models_nnx.shared import config
from parity.cases.case import Case, Pair
from parity.matrix.cases import ONE_STRUCTURE, twins
from parity.matrix.decoders import Variant

PATH = Path(__file__).with_name("covering.json")
"""``{case: {"parts", "program", "mesh", "run"}}``: the parts of a `Variant`, and True for a case that is also run."""

BY_PROOF = {
    "rng": "by proof alone; the cases that run compare draws as well",
    "retrace": "by proof alone; the cases that run are traced again as well",
}
RUN = dataclasses.replace(ONE_STRUCTURE, paranoid=True)
PROVED = dataclasses.replace(ONE_STRUCTURE, not_applicable=BY_PROOF)


def made(record: Any) -> Any:
    """Returns a value of a config from JSON: a list for a tuple, ``{class: fields}`` or ``{enum: value}``."""
    if isinstance(record, list):
        return tuple(map(made, record))
    if not isinstance(record, dict):
        return record
    ((name, content),) = record.items()
    kind = getattr(config, name)
    if isinstance(content, dict):
        return kind(**{field: made(value) for field, value in content.items()})
    return kind(content)


def cases(settings: Mapping[str, str]) -> list[Case]:
    """Returns a case per chosen combination."""
    matrix = []
    for name, row in json.loads(PATH.read_text(encoding="utf-8")).items():
        parts = {part: made(record) for part, record in row["parts"].items()}
        variant = dataclasses.replace(Variant("", **parts).override(settings), name=f"covering-{name}")
        matrix.append(twins(variant, row["program"], row["mesh"], RUN if row["run"] else PROVED))
    return matrix


PAIR = Pair(name="covering", about="every option of the decoders with every other, by proof", cases=cases)
