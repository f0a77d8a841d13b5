"""The words of the gate: flip, feature, what is demanded, which cells have no question."""

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
}
"""Demands of a channel, and the least verdicts that meet each; ``passes``: any verdict that answers the question."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Feature:
    """A part of the code base that a flip touches.

    Args:
        name: for people.
        cases: selectors of its cases; each must select at least one.
        require: channel -> requirement, over the flip's.
    """

    name: str
    cases: tuple[str, ...]
    require: Mapping[str, Requirement] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flip:
    """A named change of defaults.

    Args:
        name: as the command line takes it.
        about: what changes, in one line.
        before, after: its settings.
        features: what it touches.
        require: channel -> requirement, over those of all flips.
        meshes: globs; each feature must have a case on a mesh that each of them matches.
        budgets: how far structure may grow, by ``channel.quantity``.
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
    """Cells that are skipped with good reason: the channel has no question there.

    Args:
        reason: why.
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
        """Whether a cell is one of them."""
        texts = ((feature, self.feature), (mesh, self.mesh), (channel, self.channel))
        return all(fnmatch.fnmatchcase(text, glob) for text, glob in texts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rules:
    """All that ``[tool.parity]`` says about the gate.

    Args:
        flips: by name.
        not_applicable: cells that may be skipped.
        base: what loosening is compared with; empty for the branch that is found.
        baselines: folder of the accepted verdicts; None for none.
        entries: what may be looser than at the merge base -> why.
        root: folder of the file.
        table: the settings as they are in the file.
    """

    flips: Mapping[str, Flip]
    not_applicable: tuple[NoQuestion, ...] = ()
    base: str = ""
    baselines: Path | None = None
    entries: Mapping[str, str] = dataclasses.field(default_factory=dict)
    root: Path | None = None
    table: Mapping[str, object] = dataclasses.field(default_factory=dict)
