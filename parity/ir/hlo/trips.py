"""Trip counts of counted loops."""

__all__ = ["count_trips"]

_SWAPPED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE", "NE": "NE"}


def count_trips(start: int, step: int, limit: int, direction: str) -> int | None:
    """Returns the iterations of ``for (i = start; i <direction> limit; i += step)``.

    Args:
        start: first value of the counter.
        step: increment per iteration.
        limit: the number that the counter is compared with.
        direction: ``LT``, ``LE``, ``GT``, ``GE`` or ``NE``.

    Returns:
        The count, or None for a loop that does not end or has another kind of condition.
    """
    if direction not in _SWAPPED or step == 0:
        return None
    if direction in ("GT", "GE"):
        start, step, limit, direction = -start, -step, -limit, _SWAPPED[direction]
    distance = limit - start + (direction == "LE")
    if direction == "NE":
        return distance // step if distance % step == 0 and distance // step >= 0 else None
    if distance <= 0:
        return 0
    return -(-distance // step) if step > 0 else None


def swap(direction: str) -> str:
    """Returns the comparison with its two sides exchanged.

    Args:
        direction: ``LT``, ``LE``, ``GT``, ``GE`` or ``NE``.
    """
    return _SWAPPED.get(direction, "")
