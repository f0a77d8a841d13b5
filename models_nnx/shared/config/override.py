"""Settings as text, as from a command line."""

import dataclasses
import functools
import typing
from collections.abc import Mapping
from typing import Any

from models_nnx.shared.config.checks import ConfigError

__all__ = [
    "override",
]


def override(config: Any, settings: Mapping[str, str]) -> Any:
    """Returns ``config`` with fields replaced by values parsed from text, as from a command line.

    Args:
        config: any config of this module.
        settings: ``{"embed": "64", "attention.heads": "4"}``; a dot selects a field of a part.

    Raises:
        ConfigError: unknown field, text that is no value of the field's type, or a broken rule.
    """
    if not settings:
        return config
    return _override(config, {tuple(name.split(".")): text for name, text in settings.items()}, "")


def _override(config: Any, settings: Mapping[tuple[str, ...], str], prefix: str) -> Any:
    """Replaces all fields of a part at once, so that rules between them check only the new values."""
    fields = [field.name for field in dataclasses.fields(config)]
    changes: dict[str, Any] = {}
    for name in dict.fromkeys(path[0] for path in settings):
        texts = {path[1:]: text for path, text in settings.items() if path[0] == name}
        text = next(iter(texts.values()))
        if name not in fields:
            raise ConfigError(prefix + name, text, f"a field of {type(config).__name__}: {', '.join(fields)}")
        current = getattr(config, name)
        if () in texts:
            changes[name] = _parse(prefix + name, current, _optional(config, name), texts[()])
        elif dataclasses.is_dataclass(current):
            changes[name] = _override(current, texts, f"{prefix}{name}.")
        elif current is None and dataclasses.is_dataclass(_optional(config, name)):
            raise ConfigError(prefix + name, text, f"a config that has {name}, but it is none here")
        else:
            raise ConfigError(prefix + name, text, f"a field without parts, {type(config).__name__}.{name}")
    return dataclasses.replace(config, **changes)


def _optional(config: Any, field: str) -> type | None:
    """Returns ``X`` for a field annotated ``X | None``; None for other fields."""
    kinds = typing.get_args(_hints(type(config))[field])
    return kinds[0] if len(kinds) == 2 and kinds[1] is type(None) else None


@functools.cache
def _hints(kind: type) -> Mapping[str, Any]:
    return typing.get_type_hints(kind)


def _parse(field: str, current: Any, optional: type | None, text: str) -> Any:
    if optional and text == "none":
        return None
    if isinstance(current, tuple) and all(isinstance(item, str) for item in current):
        item = current[0] if current else ""
        return tuple(_parse(field, item, None, part) for part in text.split(",") if part)
    kind = optional or type(current)
    if not issubclass(kind, int | float | str):
        raise ConfigError(field, text, f"a single value, but it is {kind.__name__}")
    try:
        return kind(text)
    except ValueError:
        choices = getattr(kind, "__members__", {})
        known = f"one of {', '.join(map(str, choices.values()))}" if choices else f"a {kind.__name__}"
        raise ConfigError(field, text, f"{known}, such as {str(current)!r}") from None
