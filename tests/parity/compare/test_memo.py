"""Calls whose results are cached."""

import pytest

from parity.compare.memo import Memo, Once


class Owner:
    def __init__(self):
        self.memo, self.calls = Memo(), []

    @Once
    def length(self):
        """A number."""
        self.calls.append("length")
        return len(self.calls)

    @Once
    def broken(self):
        self.calls.append("broken")
        raise ValueError(len(self.calls))


def test_a_property_is_computed_once_for_each_owner():
    one, other = Owner(), Owner()
    assert Owner.length not in one.memo
    assert (one.length, one.length, other.length) == (1, 1, 1)
    assert one.calls == other.calls == ["length"]
    assert Owner.length in one.memo and Owner.broken not in one.memo
    assert Owner.length.__doc__ == "A number."


def test_a_failure_is_kept_with_the_frames_that_raised_it():
    one = Owner()
    caught = []
    for _ in range(3):
        with pytest.raises(ValueError, match="1") as error:
            _ = one.broken
        caught.append(error)
    assert one.calls == ["broken"]
    assert len({id(error.value) for error in caught}) == 1
    assert len({len(error.traceback) for error in caught}) == 1
    assert all(error.traceback[-1].name == "broken" for error in caught)


def test_an_interrupt_is_not_kept():
    memo, calls = Memo(), []

    def wait():
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return "done"

    with pytest.raises(KeyboardInterrupt):
        memo(wait)
    assert memo(wait) == "done"


def test_calls_go_by_function_and_arguments():
    memo = Memo()
    assert memo(max, 1, 2) == 2 and memo(min, 1, 2) == 1 and memo(max, 1, 3) == 3


def test_shared_results_go_by_the_values_they_depend_on_and_a_failure_is_tried_again():
    memo = Memo()
    assert memo.share(divmod, 7, 2, by=("a",)) == (3, 1) == memo.share(divmod, 9, 2, by=("a",))
    assert memo.share(divmod, 9, 2, by=("b",)) == (4, 1)
    with pytest.raises(ZeroDivisionError):
        memo.share(divmod, 1, 0, by=("c",))
    assert memo.share(divmod, 1, 1, by=("c",)) == (1, 0)
