"""Memoised calls: results and failures are kept by the function and the values they depend on."""

import types
from collections.abc import Callable, Hashable
from typing import Any, Generic, NamedTuple, TypeVar, overload

T = TypeVar("T")


class _Outcome(NamedTuple):
    """The result of a call, or its exception with the frames that raised it."""

    result: Any
    error: Exception | None = None
    frames: types.TracebackType | None = None


class Memo:
    """Makes each call once, so that the order of calls changes no result."""

    def __init__(self):
        self._outcomes: dict[tuple[Hashable, ...], _Outcome] = {}

    def __call__(
        self,
        function: Callable[..., T],
        *arguments: Any,
        by: tuple[Hashable, ...] | None = None,
        keep_failure: bool = True,
    ) -> T:
        """Returns ``function(*arguments)`` or raises its exception; calls it only the first time.

        Args:
            by: the values that the outcome depends on; all arguments by default.
            keep_failure: False if a failure may depend on other values, too.
        """
        key = (function, *(arguments if by is None else by))
        if key not in self._outcomes:
            try:
                self._outcomes[key] = _Outcome(function(*arguments))
            except Exception as error:
                if not keep_failure:
                    raise
                self._outcomes[key] = _Outcome(None, error, error.__traceback__)
        result, error, frames = self._outcomes[key]
        if error is not None:
            raise error.with_traceback(frames)
        return result

    def share(self, function: Callable[..., T], *arguments: Any, by: tuple[Hashable, ...]) -> T:
        """Returns ``function(*arguments)``, or an earlier result for the values ``by``, which decide no failure."""
        return self(function, *arguments, by=by, keep_failure=False)

    def __contains__(self, one: "Once[Any]") -> bool:
        """Returns True if a property of the owner was read before, as in ``Side.compiled in side.memo``."""
        return (one.function,) in self._outcomes


class Once(Generic[T]):
    """A property that is computed once, when first read, and kept in its owner's ``memo``; a failure is kept too."""

    def __init__(self, function: Callable[[Any], T]):
        self.function, self.__doc__ = function, function.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> "Once[T]": ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: Any, owner: type) -> "Once[T] | T":
        return self if instance is None else instance.memo(self.function, instance, by=())
