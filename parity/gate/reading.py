"""Reads flips and other gate settings from ``[tool.parity]``, and validates them before anything runs."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from parity.cases.budgets import read_budgets
from parity.cases.settings import SettingsError, find_settings
from parity.cases.tables import Table, read, unknown
from parity.cases.waivers import check_day, past
from parity.channels import CHANNELS
from parity.gate.flips import DEMANDS, Feature, Flip, NoQuestion, Rules
from parity.values.ladder import ARBITRATION, FLOOR_FACTOR
from parity.verdicts import Requirement

__all__ = ["TOLERANCES", "Tables", "find_rules", "read_require", "read_rules"]

TOLERANCES = {"floor": FLOOR_FACTOR, "arbitration": ARBITRATION}
"""Tolerances of the engine; a project may repeat them, so that a change of one appears in its settings."""

Demands = Annotated[
    Mapping[str, Annotated[str | list[Any], msgspec.Meta(description="a text or a list")]],
    msgspec.Meta(description='a table such as { program = "proved" }'),
]
Cases = Annotated[tuple[str, ...], msgspec.Meta(min_length=1, description='selectors such as ["llama2-*"]')]


class _Feature(Table, frozen=True):
    cases: Cases
    require: Demands = msgspec.field(default_factory=dict)


class _Flip(Table, frozen=True, kw_only=True):
    about: str = ""
    before: dict[str, Any] = msgspec.field(default_factory=dict)
    after: dict[str, Any] = msgspec.field(default_factory=dict)
    features: Annotated[
        dict[str, _Feature | Cases],
        msgspec.Meta(min_length=1, description='a table such as { decoder = ["llama2-*"] }'),
    ]
    require: Demands = msgspec.field(default_factory=dict)
    meshes: tuple[str, ...] = ()
    budgets: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def parts(self) -> dict[str, _Feature]:
        """The features by name; a bare list of cases becomes a feature."""
        return {
            name: one if isinstance(one, _Feature) else _Feature(one) for name, one in self.features.items()
        }


class _Gate(Table, frozen=True, kw_only=True):
    base: str = ""
    baselines: str = ""
    require: Demands = msgspec.field(default_factory=dict)
    not_applicable: tuple[NoQuestion, ...] = ()
    tolerances: dict[str, float] = msgspec.field(default_factory=dict)


class _Entry(Table, frozen=True):
    what: Annotated[str, msgspec.Meta(description='the key, such as "gate.require.values"')]
    reason: Annotated[str, msgspec.Meta(description='"why it may be relaxed"')]
    expires: Annotated[str, msgspec.Meta(description="a day such as 2027-01-31")]

    def __post_init__(self):
        for name in ("what", "reason", "expires"):
            if not getattr(self, name).strip():
                raise ValueError(f"got no {name}, expected what, reason and expires = 2027-01-31")
        check_day(self.expires, f"relaxed {self.what}")


class Tables(msgspec.Struct, frozen=True):
    """The part of ``[tool.parity]`` that the gate reads."""

    flips: dict[str, _Flip] = {}
    gate: _Gate = _Gate()
    relaxed: tuple[_Entry, ...] = ()


def find_rules(start: Path) -> Rules:
    """Returns the rules of the project around a folder.

    Raises:
        SettingsError: it has no flips, or a setting has the wrong form.
    """
    settings = find_settings(start)
    if settings.root is None or not settings.gate.get("flips"):
        raise SettingsError(
            f"{start}: got no flips, expected [tool.parity.flips.NAME] in pyproject.toml here or above; "
            "docs/gate.md begins with one"
        )
    try:
        return read_rules(settings.gate, settings.root)
    except ValueError as error:
        raise SettingsError(f"{settings.root / 'pyproject.toml'} [tool.parity]: {error}") from error


def read_rules(table: Mapping[str, Any], root: Path | None = None) -> Rules:
    """Returns the rules from tables of settings.

    Args:
        table: ``flips``, ``gate`` and ``relaxed``, as parsed TOML.
        root: base of relative folders.

    Raises:
        ValueError: the place, the value, the expected one.
    """
    tables = read(Tables, table)
    gate = tables.gate
    defaults = read_require(gate.require, "gate.require")
    for name, value in gate.tolerances.items():
        if name not in TOLERANCES:
            raise ValueError(f"gate.tolerances: {unknown(name, TOLERANCES)}")
        if not math.isclose(value, TOLERANCES[name]):
            raise ValueError(
                f"gate.tolerances.{name}: got {value:g}, the engine's is {TOLERANCES[name]:g}; write that"
            )
    return Rules(
        flips={name: _flip(name, fields, defaults) for name, fields in tables.flips.items()},
        not_applicable=gate.not_applicable,
        base=gate.base,
        baselines=(root or Path()) / gate.baselines if gate.baselines else None,
        entries={
            one.what: f"{one.reason} (until {one.expires})" for one in tables.relaxed if not past(one.expires)
        },
        root=root,
        table=table,
    )


def _flip(name: str, fields: _Flip, defaults: Mapping[str, Requirement]) -> Flip:
    where = f"flips.{name}"
    required = {**defaults, **read_require(fields.require, f"{where}.require")}
    if not required:
        raise ValueError(
            f'{where}: got no demands, expected require = {{ program = "proved" }} here or in gate'
        )
    return Flip(
        name=name,
        about=fields.about,
        features=tuple(_feature(key, one, f"{where}.features.{key}") for key, one in fields.parts.items()),
        require=required,
        before={key: str(setting) for key, setting in fields.before.items()},
        after={key: str(setting) for key, setting in fields.after.items()},
        meshes=fields.meshes,
        budgets=read_budgets(fields.budgets, f"{where}.budgets"),
    )


def _feature(name: str, fields: _Feature, where: str) -> Feature:
    return Feature(name=name, cases=fields.cases, require=read_require(fields.require, f"{where}.require"))


def read_require(table: Mapping[str, str | list[Any]], where: str) -> dict[str, Requirement]:
    """Returns the requirement of each channel; several texts for one channel are alternatives.

    Args:
        table: channel -> a requirement, or a list of alternatives.
        where: key of the table, for messages.

    Raises:
        ValueError: an unknown channel or requirement.
    """
    if strangers := [channel for channel in table if channel not in CHANNELS]:
        raise ValueError(f"{where}: {unknown(strangers[0], CHANNELS)}")
    return {
        channel: Requirement.of(demand, f"{where}.{channel}", DEMANDS) for channel, demand in table.items()
    }
