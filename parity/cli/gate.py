"""``parity gate``."""


def gate() -> None:
    """Placeholder."""
