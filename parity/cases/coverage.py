"""Options of configs, and those that no case varies."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["options_of", "unvaried"]


def options_of(config: Any, prefix: str = "") -> dict[str, Any]:
    """Returns ``{option: value}`` of a config; options of nested configs are joined by dots.

    Args:
        config: a mapping, an instance of a dataclass or a pydantic model; None gives no options.
        prefix: prefix of the names.

    Raises:
        TypeError: the config is of another type.
    """
    if config is None:
        return {}
    found: dict[str, Any] = {}
    for name, value in _fields(config).items():
        nested = isinstance(value, Mapping) or _is_config(value)
        found.update(options_of(value, f"{prefix}{name}.") if nested else {f"{prefix}{name}": value})
    return found


def _is_config(value: Any) -> bool:
    return not isinstance(value, type) and (
        dataclasses.is_dataclass(value) or isinstance(getattr(type(value), "model_fields", None), Mapping)
    )


def _fields(config: Any) -> Mapping[str, Any]:
    if isinstance(config, Mapping):
        return {str(name): value for name, value in config.items()}
    if not _is_config(config):
        raise TypeError(
            f"config: got {type(config).__name__}, expected a mapping, a dataclass instance or a pydantic model"
        )
    fields = getattr(type(config), "model_fields", None)
    names = list(fields) if fields else [field.name for field in dataclasses.fields(config)]
    return {name: getattr(config, name) for name in names}


def unvaried(configs: Iterable[Any]) -> dict[str, str]:
    """Returns ``{option: its only value}`` of the options that have one value in all configs.

    An option that some configs lack counts as varied.

    Args:
        configs: of all cases; see `options_of`.
    """
    rows = [options_of(config) for config in configs]
    texts = [{name: repr(value) for name, value in row.items()} for row in rows]
    every = dict.fromkeys(name for row in texts for name in row)
    values = {name: {row.get(name) for row in texts} for name in every}
    return {name: only for name, (only, *more) in values.items() if only is not None and not more}
