"""Reads flips and the rest of the gate's data from ``[tool.parity]``; what is wrong is said before anything runs."""

import difflib
import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from parity.cases.budgets import read_budgets
from parity.cases.settings import SettingsError, find_settings
from parity.cases.waivers import check_day, past
from parity.channels import CHANNELS
from parity.gate.flips import DEMANDS, Feature, Flip, NoQuestion, Rules
from parity.values.ladder import ARBITRATION, FLOOR_FACTOR
from parity.verdicts import Requirement

__all__ = ["TOLERANCES", "find_rules", "read_require", "read_rules"]

TOLERANCES = {"floor": FLOOR_FACTOR, "arbitration": ARBITRATION}
"""What the engine tolerates; a project may write it down, so that a change of it is a change of its settings."""

FLIP = ("about", "before", "after", "features", "require", "meshes", "budgets")
GATE = ("base", "baselines", "require", "not_applicable", "tolerances")


def find_rules(start: Path) -> Rules:
    """Returns the rules of the project that one stands in.

    Raises:
        SettingsError: it has no flips, or something has the wrong form.
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
    """Returns the rules that tables of settings make.

    Args:
        table: ``flips``, ``gate`` and ``relaxed``, as TOML gives them.
        root: what folders are relative to.

    Raises:
        ValueError: where, what is there, what was expected.
    """
    gate = _known(table.get("gate", {}), "gate", GATE)
    defaults = read_require(gate.get("require", {}), "gate.require")
    for name, value in _table(gate.get("tolerances", {}), "gate.tolerances").items():
        _choice(name, TOLERANCES, "gate.tolerances")
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not math.isclose(value, TOLERANCES[name]):
            raise ValueError(
                f"gate.tolerances.{name}: got {value!r}, the engine's is {TOLERANCES[name]:g}; write that"
            )
    flips = {
        name: _flip(name, fields, defaults)
        for name, fields in _table(table.get("flips", {}), "flips").items()
    }
    folder = gate.get("baselines", "")
    return Rules(
        flips=flips,
        not_applicable=tuple(
            _no_question(fields, f"gate.not_applicable, number {number}")
            for number, fields in enumerate(_list(gate.get("not_applicable", []), "gate.not_applicable"), 1)
        ),
        base=_text(gate.get("base", ""), "gate.base"),
        baselines=(root or Path()) / _text(folder, "gate.baselines") if folder else None,
        entries=_entries(table.get("relaxed", [])),
        root=root,
        table=table,
    )


def _flip(name: str, fields: Any, defaults: Mapping[str, Requirement]) -> Flip:
    where = f"flips.{name}"
    found = _known(fields, where, FLIP)
    features = _table(found.get("features", {}), f"{where}.features")
    if not features:
        raise ValueError(f'{where}: got no features, expected features = {{ decoder = ["llama2-*"] }}')
    own = read_require(found.get("require", {}), f"{where}.require")
    if not (required := {**defaults, **own}):
        raise ValueError(
            f'{where}: got no demands, expected require = {{ program = "proved" }} here or in gate'
        )
    return Flip(
        name=name,
        about=_text(found.get("about", ""), f"{where}.about"),
        features=tuple(_feature(key, value, f"{where}.features.{key}") for key, value in features.items()),
        require=required,
        before=_settings(found.get("before", {}), f"{where}.before"),
        after=_settings(found.get("after", {}), f"{where}.after"),
        meshes=tuple(
            _text(one, f"{where}.meshes") for one in _list(found.get("meshes", []), f"{where}.meshes")
        ),
        budgets=_budgets(found.get("budgets", {}), where),
    )


def _feature(name: str, value: Any, where: str) -> Feature:
    fields = _known({"cases": value} if isinstance(value, list) else value, where, ("cases", "require"))
    cases = [_text(one, f"{where}.cases") for one in _list(fields.get("cases", []), f"{where}.cases")]
    if not cases:
        raise ValueError(f'{where}: got no cases, expected selectors such as ["llama2-*"]')
    return Feature(
        name=name, cases=tuple(cases), require=read_require(fields.get("require", {}), f"{where}.require")
    )


def read_require(value: Any, where: str) -> dict[str, Requirement]:
    """Returns the requirement of each channel; several texts of one are alternatives.

    Args:
        value: channel -> a demand, or a list of them.
        where: key of the table, for messages.

    Raises:
        ValueError: there is no such channel or demand.
    """
    found = _table(value, where)
    for channel, demand in found.items():
        _choice(channel, CHANNELS, where)
        if not isinstance(demand, str | list):
            raise ValueError(f"{where}.{channel}: got {demand!r}, expected a text or a list")
    return {
        channel: Requirement.of(demand, f"{where}.{channel}", DEMANDS) for channel, demand in found.items()
    }


def _budgets(value: Any, where: str) -> dict[str, Any]:
    try:
        return read_budgets(value)
    except ValueError as error:
        raise ValueError(f"{where}.{error}") from error


def _no_question(value: Any, where: str) -> NoQuestion:
    fields = _known(value, where, ("feature", "mesh", "channel", "reason"))
    texts = {name: _text(text, f"{where}, {name}") for name, text in fields.items()}
    if not texts.get("reason", "").strip():
        raise ValueError(f'{where}: got no reason, expected reason = "why nothing can be asked there"')
    return NoQuestion(**texts)


def _entries(value: Any) -> dict[str, str]:
    entries = {}
    for number, one in enumerate(_list(value, "relaxed"), 1):
        where = f"relaxed, number {number}"
        fields = _known(one, where, ("what", "reason", "expires"))
        texts = {name: str(text) for name, text in fields.items()}
        for name in ("what", "reason", "expires"):
            if not texts.get(name, "").strip():
                raise ValueError(f"{where}: got no {name}, expected what, reason and expires = 2027-01-31")
        check_day(texts["expires"], where)
        if not past(texts["expires"]):
            entries[texts["what"]] = f"{texts['reason']} (until {texts['expires']})"
    return entries


def _settings(value: Any, where: str) -> dict[str, str]:
    return {name: str(setting) for name, setting in _table(value, where).items()}


def _known(value: Any, where: str, names: Collection[str]) -> Mapping[str, Any]:
    found = _table(value, where)
    for name in found:
        _choice(name, names, where)
    return found


def _choice(name: str, names: Collection[str], where: str) -> None:
    if name not in names:
        near = difflib.get_close_matches(name, list(names), n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"{where}: got {name}, expected one of {', '.join(names)}{hint}")


def _table(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{where}: got {value!r}, expected a table")
    return value


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{where}: got {value!r}, expected a list")
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{where}: got {value!r}, expected a text")
    return value
