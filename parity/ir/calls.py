"""The user's functions that run while a function runs."""

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from parity.ir.functions import Frame, function_of, is_users

COMPREHENSIONS = frozenset({"<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>"})


def makers(runs: Sequence[Callable[[], Any]], is_made: Callable[[Any], bool]) -> Iterator[Frame | None]:
    """Yields for both functions the user's function, not shared with the other, that makes a value while it runs.

    It is the first that returns such a value, else the first that is called; None if there is none.
    """
    found = [_called(run, is_made) for run in runs]
    for frames, others in zip(found, found[::-1], strict=True):
        shared = set(map(function_of, others))
        yield next((frame for frame in frames if function_of(frame) not in shared), None)


def _called(run: Callable[[], Any], is_made: Callable[[Any], bool]) -> list[Frame]:
    """Returns the user's functions that return a value, innermost first, then all in the order of their calls."""
    called: dict[Frame, None] = {}
    made: dict[Frame, None] = {}

    def note(frame: Any, event: str, value: Any) -> None:
        code = frame.f_code
        place = Frame(code.co_filename, code.co_firstlineno, code.co_qualname)
        own = is_users(place.file) and code.co_name not in COMPREHENSIONS
        if own and event in ("call", "return"):
            called.setdefault(place)
            if event == "return" and is_made(value):
                made.setdefault(place)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    return [*made, *called]
