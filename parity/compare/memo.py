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

    def __call__(self, function: Callable[..., T], *arguments: Any) -> T:
        """Returns ``function(*arguments)`` or raises its exception; calls it only the first time."""
        return self._outcome((function, *arguments), function, arguments, keep_failure=True)

    def of_owner(self, function: Callable[[Any], T], owner: Any) -> T:
        """Returns ``function(owner)``, or raises its exception; the memo belongs to this owner only."""
        return self._outcome((function,), function, (owner,), keep_failure=True)

    def share(self, function: Callable[..., T], *arguments: Any, by: tuple[Hashable, ...]) -> T:
        """Returns ``function(*arguments)``, or an earlier result for the same values.

        A failure is not kept, because it may depend on arguments that are not ``by``, which a result depends on.
        """
        return self._outcome((function, *by), function, arguments, keep_failure=False)

    def __contains__(self, one: "Once[Any]") -> bool:
        """Returns True if a property of the owner was read before, as in ``Side.compiled in side.memo``."""
        return (one.function,) in self._outcomes

    def _outcome(
        self, key: tuple[Hashable, ...], function: Callable[..., T], arguments: tuple, *, keep_failure: bool
    ) -> T:
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


class Once(Generic[T]):
    """A property that is computed once, when first read, and kept in its owner's ``memo``; a failure is kept too."""

    def __init__(self, function: Callable[[Any], T]):
        self.function, self.__doc__ = function, function.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> "Once[T]": ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: Any, owner: type) -> "Once[T] | T":
        return self if instance is None else instance.memo.of_owner(self.function, instance)
