"""Tokens of the text that MLIR prints for an attribute: strings, symbol references, single characters."""

import re
from collections.abc import Callable

__all__ = ["replace_symbols", "split_list", "symbol_of"]

_STRING = r'"(?:[^"\\]|\\.)*"'
_NAME = rf"@(?:{_STRING}|[\w.$-]+)"
# A symbol reference may be nested, @outer::@inner. Inside of a string nothing is a reference.
_PART = re.compile(rf"{_STRING}|{_NAME}|[][(){{}}<>,]", re.DOTALL | re.ASCII)
_TOKEN = re.compile(rf"{_STRING}|({_NAME}(?:::{_NAME})*)|.", re.DOTALL | re.ASCII)


def symbol_of(name: str) -> str:
    r"""Returns the text of a symbol name without quotes, escapes kept, as in the symbol table.

    MLIR escapes a name in the same way everywhere, and quotes it if it is not a plain identifier.

    Args:
        name: the printed name of a definition, ``"f"``, or a reference, ``@f`` or ``@"a\22b"``.
    """
    name = name.removeprefix("@")
    return name[1:-1] if name.startswith('"') else name


def replace_symbols(text: str, replace: Callable[[str], str]) -> str:
    """Returns the text with every symbol reference replaced.

    Args:
        text: an attribute as MLIR prints it.
        replace: called with a reference as printed, ``@f`` or ``@outer::@inner``.
    """
    if "@" not in text:
        return text
    return _TOKEN.sub(lambda match: replace(match.group(1)) if match.group(1) else match.group(0), text)


def split_list(text: str) -> list[str]:
    """Splits the text of a bracketed list at its top-level commas; brackets inside strings do not count."""
    start, end = text.find("[") + 1, text.rfind("]") % max(len(text), 1)
    parts, depth, begin = [], 0, start
    for match in _PART.finditer(text, start, max(start, end)):
        token = match.group()
        if token == ",":
            if depth == 0:
                parts.append(text[begin : match.start()].strip())
                begin = match.end()
        elif len(token) == 1:
            depth += 1 if token in "[{(<" else -1
    last = text[begin : max(begin, end)].strip()
    return [*parts, last] if last else parts
