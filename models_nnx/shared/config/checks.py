"""Checks of configuration values; their errors name field, value and rule."""

import enum
import math

__all__ = [
    "ConfigError",
    "require",
    "require_choice",
    "require_number",
    "require_positive",
]


class ConfigError(ValueError):
    """A configuration value breaks a rule; the message names field, value and rule."""

    def __init__(self, field: str, value: object, rule: str):
        super().__init__(f"config field {field}: got {value!r}, expected {rule}")


def require(holds: bool, field: str, value: object, rule: str) -> None:
    """Raises `ConfigError` unless ``holds``."""
    if not holds:
        raise ConfigError(field, value, rule)


def require_positive(config: object, *fields: str) -> None:
    """Raises `ConfigError` unless each field is a whole number above 0."""
    for field in fields:
        value = getattr(config, field)
        whole = isinstance(value, int) and not isinstance(value, bool)
        require(whole and value > 0, field, value, "a whole number above 0")


def require_choice(config: object, **choices: type[enum.StrEnum]) -> None:
    """Raises `ConfigError` unless each field is a member of its enum."""
    for field, kind in choices.items():
        value = getattr(config, field)
        require(
            isinstance(value, kind),
            field,
            value,
            f"one of {', '.join(map(str, kind.__members__.values()))} as {kind.__name__}",
        )


def require_number(config: object, field: str, low: float, high: float, rule: str) -> None:
    """Raises `ConfigError` unless the field is a finite number in [low, high)."""
    value = getattr(config, field)
    require(math.isfinite(value) and low <= value < high, field, value, rule)
