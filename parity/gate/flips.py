"""Data model of the gate: flip, feature, requirements, cells that do not apply."""

import dataclasses
import fnmatch
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from parity.cases.budgets import Budget
from parity.cases.tables import Table
from parity.verdicts import RUNGS, Requirement, Verdict

__all__ = ["DEMANDS", "Feature", "Flip", "NoQuestion", "Rules"]

DEMANDS = {
    **{str(rung): (rung,) for rung in RUNGS},
    "equal": (Verdict.EQUAL,),
    "passes": (Verdict.ARBITRATED, Verdict.EXACT, Verdict.EQUAL),
    "unproved": (Verdict.UNPROVED,),
}
"""Requirement of a channel -> the least verdicts that satisfy it; ``passes`` needs any verdict with a result,
``unproved`` leaves the verdict to the other channels."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Feature:
    """A part of the code base that a flip affects.

    Args:
        name: for display.
        cases: selectors of its cases; each must select at least one.
        require: channel -> requirement; overrides the flip's.
    """

    name: str
    cases: tuple[str, ...]
    require: Mapping[str, Requirement] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flip:
    """A named change of defaults.

    Args:
        name: as on the command line.
        about: the change in one line.
        before, after: its settings.
        features: the affected features.
        require: channel -> requirement; overrides the gate's.
        meshes: globs; for each glob, every feature must have a case on a matching mesh.
        budgets: allowed structural changes, by ``channel.quantity``.
    """

    name: str
    about: str
    features: tuple[Feature, ...]
    require: Mapping[str, Requirement]
    before: Mapping[str, str] = dataclasses.field(default_factory=dict)
    after: Mapping[str, str] = dataclasses.field(default_factory=dict)
    meshes: tuple[str, ...] = ()
    budgets: Mapping[str, Budget] = dataclasses.field(default_factory=dict)

    @property
    def cases(self) -> tuple[str, ...]:
        """The selectors of all its features, each once."""
        return tuple(dict.fromkeys(one for feature in self.features for one in feature.cases))


class NoQuestion(Table, frozen=True, kw_only=True):
    """Cells that may be skipped, because the channel does not apply there.

    Args:
        reason: why it does not apply.
        feature, mesh, channel: globs.

    Raises:
        ValueError: no reason.
    """

    reason: Annotated[str, msgspec.Meta(description='"why nothing can be compared there"')]
    feature: str = "*"
    mesh: str = "*"
    channel: str = "*"

    def __post_init__(self):
        if not self.reason.strip():
            raise ValueError('got no reason, expected reason = "why nothing can be compared there"')

    def covers(self, feature: str, mesh: str, channel: str) -> bool:
        """True if the globs match a cell."""
        texts = ((feature, self.feature), (mesh, self.mesh), (channel, self.channel))
        return all(fnmatch.fnmatchcase(text, glob) for text, glob in texts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rules:
    """The settings of the gate in ``[tool.parity]``.

    Args:
        flips: by name.
        not_applicable: cells that may be skipped.
        base: branch that settings are compared with; empty to find one.
        baselines: folder of the accepted verdicts; None for none.
        entries: key that may be relaxed since the merge base -> reason.
        root: folder of the file.
        table: the settings, unparsed.
    """

    flips: Mapping[str, Flip]
    not_applicable: tuple[NoQuestion, ...] = ()
    base: str = ""
    baselines: Path | None = None
    entries: Mapping[str, str] = dataclasses.field(default_factory=dict)
    root: Path | None = None
    table: Mapping[str, object] = dataclasses.field(default_factory=dict)
