"""Options of configs, and those that no case varies."""

import collections
import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from parity.cases.case import Case
from parity.verdicts import listed


def options_of(config: Any, prefix: str = "") -> dict[str, Any]:
    """Returns ``{option: value}`` of a config; options of nested configs are joined by dots.

    Args:
        config: a mapping, an instance of a dataclass or a pydantic model; None gives no options; else a TypeError.
    """
    if config is None:
        return {}
    if not _is_config(config):
        raise TypeError(
            f"config: got {type(config).__name__}, expected a mapping, a dataclass instance or a pydantic model"
        )
    if dataclasses.is_dataclass(config):
        config = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    found: dict[str, Any] = {}
    for name, value in dict(config).items():  # a pydantic model yields names and values
        found |= options_of(value, f"{prefix}{name}.") if _is_config(value) else {f"{prefix}{name}": value}
    return found


def _is_config(value: Any) -> bool:
    return not isinstance(value, type) and (
        isinstance(value, Mapping)
        or dataclasses.is_dataclass(value)
        or isinstance(getattr(type(value), "model_fields", None), Mapping)
    )


def unvaried_options(cases: Iterable[Case]) -> dict[str, dict[str, str]]:
    """Returns ``{variants: {option: its only value}}`` of the options that have one value in all configs of a kind.

    An option that some configs lack counts as varied; a case without a config has no options.
    """
    kinds: dict[type, list[tuple[str, dict[str, str]]]] = collections.defaultdict(list)
    for case in cases:
        if case.config is not None:
            kind = Mapping if isinstance(case.config, Mapping) else type(case.config)
            row = {name: repr(value) for name, value in options_of(case.config).items()}
            kinds[kind].append((case.id.partition("/")[0], row))
    found = {}
    for rows in kinds.values():
        variants = ", ".join(dict.fromkeys(variant for variant, _ in rows))
        first, *rest = (row for _, row in rows)
        only = {name: value for name, value in first.items() if all(row.get(name) == value for row in rest)}
        found |= {variants: only} if only else {}
    return found


def unvaried_text(found: Mapping[str, Mapping[str, str]], most: int | None = None) -> str:
    """Returns the options that no case varies as one line, at most ``most`` for each kind."""
    texts = {names: [f"{option}={value}" for option, value in only.items()] for names, only in found.items()}
    lines = [f"{names}: no case varies {listed(words, most or len(words))}" for names, words in texts.items()]
    if most and any(len(words) > most for words in texts.values()):
        lines.append("`parity list --coverage` names all")
    return "; ".join(lines)
