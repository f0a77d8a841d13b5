"""Old words of the command line, and the new word for each."""

__all__ = ["renamed"]

NEW = {
    "--demand": "--require",
    "--remember": "--cached",
    "--fresh": "--refresh",
    "--compare": "python tests/campaigns records",
    "--last-failed": "pytest -m parity --lf",
    "--no-cache": "--no-compile-cache",
    "--axis": "--search",
    "--modulo": "--ignore-sharding",
    "--explain": "parity bisect CASE --search config",
    "--from": "parity report FILE",
    "hlo": "parity inspect CASE",
    "structure": "parity inspect",
    "shardings": "parity inspect CASE",
    "flags": "parity run --channel flags",
    "--harness": "python tests/campaigns harness.overhead",
    "merge": "parity report FILES --json OUT",
    "repro": "parity bisect CASE --search none --repro FOLDER",
}
"""Used only if a command does not know a word: `--from` is still an option of `parity gate`."""


def renamed(error: Exception, command: str = "") -> str:
    """Returns a sentence with the new word if a usage error is about an old one; else an empty text.

    Args:
        error: usage error of typer.
        command: first word of the command line, if it has one.
    """
    old = getattr(error, "option_name", "") or command
    known = old.startswith("-") or getattr(getattr(error, "ctx", None), "parent", None) is None
    return f"{old} is now {NEW[old]}" if known and old in NEW else ""
