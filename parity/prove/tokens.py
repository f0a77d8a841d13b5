"""The text that MLIR prints for an attribute, as tokens: strings, symbol references, single characters."""

import re
from collections.abc import Callable

__all__ = ["replace_symbols", "split_list", "symbol_of"]

_STRING = r'"(?:[^"\\]|\\.)*"'
_NAME = rf"@(?:{_STRING}|[\w.$-]+)"
# A symbol reference may be nested, @outer::@inner. Inside of a string nothing is a reference.
_TOKEN = re.compile(rf"{_STRING}|({_NAME}(?:::{_NAME})*)|.", re.DOTALL | re.ASCII)


def symbol_of(name: str) -> str:
    r"""Returns what a symbol name stands for in the table of symbols: its text without quotes, escapes kept.

    MLIR escapes a name alike wherever it prints it, in quotes if the name is no plain identifier.

    Args:
        name: the printed name of a definition, ``"f"``, or a reference, ``@f`` or ``@"a\22b"``.
    """
    name = name.removeprefix("@")
    return name[1:-1] if name.startswith('"') else name


def replace_symbols(text: str, replace: Callable[[str], str]) -> str:
    """Returns the text with every symbol reference replaced.

    Args:
        text: an attribute as MLIR prints it.
        replace: is given a reference as printed, ``@f`` or ``@outer::@inner``.
    """
    if "@" not in text:
        return text
    return _TOKEN.sub(lambda match: replace(match.group(1)) if match.group(1) else match.group(0), text)


def split_list(text: str) -> list[str]:
    """Splits the text of a bracketed list at its top-level commas; brackets inside of strings do not count."""
    start, end = text.find("["), text.rfind("]")
    parts, depth, current = [], 0, []
    for match in _TOKEN.finditer(text[start + 1 : end]):
        token = match.group(0)
        if token == "," and depth == 0:
            parts.append("".join(current).strip())
            current = []
            continue
        depth += (token in "[{(<") - (token in "]})>") if len(token) == 1 else 0
        current.append(token)
    last = "".join(current).strip()
    return [*parts, last] if last else parts
