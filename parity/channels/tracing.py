"""Which functions JAX has traced: again, or such that it could trace them again."""

import contextlib
import gc
from collections.abc import Callable, Iterator
from typing import Any

from parity.ir.jax_internals import key_difference, tracing_keys

__all__ = ["may_be_traced_again", "traced_again"]


@contextlib.contextmanager
def traced_again() -> Iterator[dict[str, str]]:
    """Collects the functions that are traced in a block though they have been traced before, and why.

    Functions that were never seen do not count, however often the block traces them then: a step makes closures
    of its own, such as scan bodies, whenever it is traced. Nor do those of JAX.
    """
    found: dict[str, str] = {}
    before = tracing_keys()
    yield found
    for function, keys in tracing_keys().items():
        known = before.get(function, [])
        if known and len(keys) > len(known):
            parts = [key.parts for key in known]
            found.update((key.name, key_difference(key, known)) for key in keys if key.parts not in parts)


def may_be_traced_again(ours: Callable[[Any, str], bool]) -> bool:
    """Returns whether any function that has been traced could be traced again by a second call of a step.

    It outlives its trace, as a scan body that is made in a step does not. One of an installed package, such as
    Optax's, must have static arguments besides: else the types of its arguments are all that its key holds.

    Args:
        ours: whether a function, from a file, is one that the harness hands to JAX itself.
    """

    def found() -> list[Any]:
        return [
            function
            for function, keys in tracing_keys().items()
            if not ours(function, keys[0].file)
            and ("site-packages" not in keys[0].file or any(key.static for key in keys))
        ]

    functions = found()
    if functions and all("<locals>" in getattr(one, "__qualname__", "") for one in functions):
        functions.clear()
        gc.collect()  # closures of a trace that is over may still hang in a cycle
        functions = found()
    return bool(functions)
