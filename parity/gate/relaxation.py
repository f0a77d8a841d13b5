"""Compares settings with the merge base: finds relaxed requirements and raised budgets without an entry."""

import contextlib
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from parity.cases.accepted import read_budgets
from parity.cases.tables import read
from parity.compare.backends.environment import GitError, git
from parity.gate.flips import Rules, read_require, read_rules
from parity.run.record import Judgement
from parity.verdicts import Verdict

BRANCHES = ("origin/HEAD", "origin/main", "main", "origin/master", "master")
"""Default target branches of a change, tried in this order."""
ABSENT = float("-inf")
Strictness = float | frozenset[Verdict]
"""Strictness, larger is stricter: a number, or the verdicts that a requirement refuses."""


def relaxed(rules: Rules, base: str = "") -> Judgement:
    """Compares the settings with those at the merge base with ``base``, by default the first branch of `BRANCHES`."""
    named = base or rules.gate.base
    try:
        fork = _merge_base(rules.root, named)
        text = git(rules.root, "show", f"{fork}:./pyproject.toml")
    except GitError as error:
        words = f"looser settings cannot be determined: {error}"
        if named:
            return Judgement(relaxed=(f"{words}; fetch the branch, with its history (fetch-depth: 0)",))
        return Judgement(notes=(f"{words}; name a branch in [tool.parity.gate] base",))
    try:
        before = tomllib.loads(text).get("tool", {}).get("parity", {})
        read_rules(before)
        dict(demands(before))
    except ValueError as error:
        return Judgement(notes=(f"settings at {fork[:10]} are no rules ({error}); nothing to compare with",))
    now = tomllib.loads((rules.root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["parity"]
    return compare(before, now, rules.entries, fork[:10])


def compare(
    before: Mapping[str, Any], after: Mapping[str, Any], entries: Mapping[str, str], name: str
) -> Judgement:
    """Returns the keys that the later of two ``[tool.parity]`` tables relaxes.

    Args:
        entries: key that may be relaxed -> reason.
        name: name of the earlier one, for messages.
    """
    old, new = dict(demands(before)), dict(demands(after))
    if not before.get("flips"):  # before the first flip, the gate's settings had no effect
        new = {key: value for key, value in new.items() if not key.startswith("gate.")}
    weaker = [key for key, value in old.items() if _looser(_asked(key, new), value)]
    allowed = [key for key, value in new.items() if key not in old and _looser(value, _was_there(key, old))]
    found = dict.fromkeys((*weaker, *allowed))
    blocks = [
        f'{key} is looser than at {name}; undo it, or add [[tool.parity.relaxed]] what = "{key}" with reason '
        "and expires"
        for key in found
        if key not in entries
    ]
    notes = [f"{key} is looser than at {name}: {entries[key]}" for key in found if key in entries]
    return Judgement(relaxed=tuple(blocks), notes=tuple(notes))


def _looser(now: Any, before: Any) -> bool:
    """True if one strictness does not reach another; two requirements may be incomparable."""
    return not now >= before


def demands(table: Mapping[str, Any]) -> Iterator[tuple[str, Strictness]]:
    """Yields each requirement in ``[tool.parity]``, by key, with its strictness; larger is stricter."""
    tables = read(Rules, table)
    yield from _rungs("gate.require", tables.gate.require)
    for name, value in tables.gate.tolerances.items():
        yield f"gate.tolerances.{name}", -value
    for one in tables.gate.not_applicable:
        yield f"gate.not_applicable.{one.feature}/{one.mesh}/{one.channel}", -1.0
    yield from _budgets("budgets", table.get("budgets", {}))
    for name, flip in tables.flips.items():
        yield f"flips.{name}", 1.0
        yield from _rungs(f"flips.{name}.require", flip.require)
        yield from _budgets(f"flips.{name}.budgets", flip.budgets)
        for mesh in flip.meshes:
            yield f"flips.{name}.meshes.{mesh}", 1.0
        for feature, fields in flip.parts.items():
            where = f"flips.{name}.features.{feature}"
            yield where, 1.0
            yield from _rungs(f"{where}.require", fields.require)
            for selector in fields.cases:
                yield f"{where}.cases.{selector}", 1.0


def _rungs(where: str, require: Mapping[str, Any]) -> Iterator[tuple[str, Strictness]]:
    for channel, demand in read_require(require, where).items():
        yield f"{where}.{channel}", frozenset(Verdict) - demand.accepted


def _budgets(where: str, table: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, budget in read_budgets(table, where).items():
        yield f"{where}.{name}.ratio", -budget.ratio
        yield f"{where}.{name}.slack", -float(budget.slack)
        yield f"{where}.{name}.floor", budget.floor


def _asked(key: str, known: Mapping[str, Strictness]) -> Strictness:
    """Returns the strictness of a key: features inherit requirements from their flip, flips from the gate."""
    if key in known:
        return known[key]
    where, required, channel = key.rpartition(".require.")
    if required and where.startswith("flips."):
        flip, of_feature, _ = where.partition(".features.")
        return _asked(f"{flip if of_feature else 'gate'}.require.{channel}", known)
    return _default(key)


def _was_there(key: str, known: Mapping[str, Strictness]) -> Strictness:
    """Returns the earlier strictness of a key; a new flip or feature has none."""
    where, required, _ = key.rpartition(".require.")
    new = required and where.startswith("flips.") and where not in known
    return frozenset() if new else _asked(key, known)


def _default(key: str) -> Strictness:
    """Returns the strictness of an absent key: a project's budget relaxes the default, which is equality."""
    if key.startswith("gate.not_applicable."):
        return 0.0
    if key.startswith("budgets."):
        return -1.0 if key.endswith(".ratio") else 0.0
    return frozenset() if ".require." in key else ABSENT


def _merge_base(root: Path, named: str) -> str:
    if named:
        return git(root, "merge-base", "HEAD", named)
    for branch in BRANCHES:
        with contextlib.suppress(GitError):
            return git(root, "merge-base", "HEAD", branch)
    raise GitError(f"none of the branches {', '.join(BRANCHES)} is here")
