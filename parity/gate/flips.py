"""Flips and the other settings of the gate in ``[tool.parity]``: read and validated before anything runs."""

import fnmatch
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from parity.cases.accepted import Budget, check_day, past, read_budgets
from parity.cases.settings import SettingsError, find_settings
from parity.cases.tables import Table, read, unknown
from parity.channels import CHANNELS
from parity.values.ladder import ARBITRATION, FLOOR_FACTOR
from parity.verdicts import RUNGS, Requirement, Verdict

DEMANDS = {
    **{str(rung): (rung,) for rung in RUNGS},
    "equal": (Verdict.EQUAL,),
    "passes": (Verdict.ARBITRATED, Verdict.EXACT, Verdict.EQUAL),
    "unproved": (Verdict.UNPROVED,),
}
"""Requirement of a channel -> the least verdicts that satisfy it; ``passes`` needs any verdict with a result,
``unproved`` leaves the verdict to the other channels."""
TOLERANCES = {"floor": FLOOR_FACTOR, "arbitration": ARBITRATION}
"""Tolerances of the engine; a project may repeat them, so that a change of one appears in its settings."""

Demands = Annotated[
    Mapping[str, Annotated[str | list[Any], msgspec.Meta(description="a text or a list")]],
    msgspec.Meta(description='a table such as { program = "proved" }'),
]
Cases = Annotated[tuple[str, ...], msgspec.Meta(min_length=1, description='selectors such as ["llama2-*"]')]


class Feature(Table, frozen=True):
    """Cases that a flip affects; ``require`` overrides the requirements of the flip."""

    cases: Cases
    require: Demands = msgspec.field(default_factory=dict)


class Flip(Table, frozen=True, kw_only=True):
    """A named change of defaults.

    Args:
        features: the affected features; a bare list of cases is a feature without requirements.
        require: channel -> requirement; overrides the gate's.
        meshes: globs; for each glob, every feature must have a case on a matching mesh.
        budgets: allowed structural changes, by channel and quantity.
    """

    about: str = ""
    before: dict[str, Any] = msgspec.field(default_factory=dict)
    after: dict[str, Any] = msgspec.field(default_factory=dict)
    features: Annotated[
        dict[str, Feature | Cases],
        msgspec.Meta(min_length=1, description='a table such as { decoder = ["llama2-*"] }'),
    ]
    require: Demands = msgspec.field(default_factory=dict)
    meshes: tuple[str, ...] = ()
    budgets: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def parts(self) -> dict[str, Feature]:
        """The features by name."""
        return {
            name: one if isinstance(one, Feature) else Feature(one) for name, one in self.features.items()
        }

    @property
    def cases(self) -> tuple[str, ...]:
        """The selectors of all its features, each once."""
        return tuple(dict.fromkeys(one for feature in self.parts.values() for one in feature.cases))


class NoQuestion(Table, frozen=True, kw_only=True):
    """Cells, as globs, that may be skipped with a reason, because the channel does not apply there."""

    reason: Annotated[str, msgspec.Meta(pattern=r"\S", description='"why nothing can be compared there"')]
    feature: str = "*"
    mesh: str = "*"
    channel: str = "*"

    def covers(self, feature: str, mesh: str, channel: str) -> bool:
        """True if the globs match a cell."""
        texts = ((feature, self.feature), (mesh, self.mesh), (channel, self.channel))
        return all(fnmatch.fnmatchcase(text, glob) for text, glob in texts)


class Gate(Table, frozen=True, kw_only=True):
    """The settings of all flips.

    Args:
        base: branch that settings are compared with; empty to find one.
        baselines: folder of the accepted verdicts; empty for none.
        tolerances: those of the engine, repeated.
    """

    base: str = ""
    baselines: str = ""
    require: Demands = msgspec.field(default_factory=dict)
    not_applicable: tuple[NoQuestion, ...] = ()
    tolerances: dict[str, float] = msgspec.field(default_factory=dict)


class Relaxed(Table, frozen=True):
    """A setting that may be relaxed since the merge base."""

    what: Annotated[str, msgspec.Meta(pattern=r"\S", description='the key, such as "gate.require.values"')]
    reason: Annotated[str, msgspec.Meta(pattern=r"\S", description='"why it may be relaxed"')]
    expires: Annotated[str, msgspec.Meta(pattern=r"\S", description="a day such as 2027-01-31")]

    def __post_init__(self):
        check_day(self.expires, f"relaxed {self.what}")


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The part of ``[tool.parity]`` that the gate reads; ``root`` is the folder of the file."""

    flips: dict[str, Flip] = {}
    gate: Gate = Gate()
    relaxed: tuple[Relaxed, ...] = ()
    root: Path = Path()

    @property
    def baselines(self) -> Path | None:
        """Folder of the accepted verdicts; None for none."""
        return self.root / self.gate.baselines if self.gate.baselines else None

    @property
    def entries(self) -> dict[str, str]:
        """Key that may be relaxed since the merge base -> reason."""
        return {
            one.what: f"{one.reason} (until {one.expires})" for one in self.relaxed if not past(one.expires)
        }

    def required(self, name: str, feature: str = "") -> dict[str, tuple[Requirement, str]]:
        """Returns channel -> requirement, and the key that has it: of a feature, else of its flip, else of the gate.

        Without a feature: the requirements of the flip. ValueError for an unknown channel or requirement.
        """
        flip = self.flips[name]
        tables = {"gate.require": self.gate.require, f"flips.{name}.require": flip.require}
        if feature:
            tables[f"flips.{name}.features.{feature}.require"] = flip.parts[feature].require
        return {
            channel: (required, where)
            for where, table in tables.items()
            for channel, required in read_require(table, where).items()
        }

    def budgets(self, name: str) -> dict[str, Budget]:
        """Returns the budgets of a flip by ``channel.quantity``, else ValueError."""
        return read_budgets(self.flips[name].budgets, f"flips.{name}.budgets")


def find_rules(start: Path) -> Rules:
    """Returns the rules of the project around a folder; SettingsError if it has no flips, or wrong ones."""
    settings = find_settings(start)
    if settings.root is None or not settings.flips:
        raise SettingsError(
            f"{start}: got no flips, expected [tool.parity.flips.NAME] in pyproject.toml here or above; "
            "docs/gate.md begins with one"
        )
    tables = {"flips": settings.flips, "gate": settings.gate, "relaxed": settings.relaxed}
    try:
        return msgspec.structs.replace(read_rules(tables), root=settings.root)
    except ValueError as error:
        raise SettingsError(f"{settings.root / 'pyproject.toml'} [tool.parity]: {error}") from error


def read_rules(table: Mapping[str, Any]) -> Rules:
    """Returns the rules from the tables ``flips``, ``gate`` and ``relaxed``, as parsed TOML, else ValueError."""
    rules = read(Rules, table)
    read_require(rules.gate.require, "gate.require")
    for name, value in rules.gate.tolerances.items():
        if name not in TOLERANCES:
            raise ValueError(f"gate.tolerances: {unknown(name, TOLERANCES)}")
        if not math.isclose(value, TOLERANCES[name]):
            raise ValueError(
                f"gate.tolerances.{name}: got {value:g}, the engine's is {TOLERANCES[name]:g}; write that"
            )
    for name, flip in rules.flips.items():
        if not rules.required(name):
            raise ValueError(
                f'flips.{name}: got no demands, expected require = {{ program = "proved" }} here or in gate'
            )
        for feature in flip.parts:
            rules.required(name, feature)
        rules.budgets(name)
    return rules


def read_require(table: Mapping[str, str | list[Any]], where: str) -> dict[str, Requirement]:
    """Returns the requirement of each channel, else ValueError; several texts for one channel are alternatives."""
    if strangers := [channel for channel in table if channel not in CHANNELS]:
        raise ValueError(f"{where}: {unknown(strangers[0], CHANNELS)}")
    return {
        channel: Requirement.of(demand, f"{where}.{channel}", DEMANDS) for channel, demand in table.items()
    }
