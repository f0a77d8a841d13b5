"""The arithmetic of the pipeline against a direct simulation of microbatches that walk through stages."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models_nnx.shared.schedule import Schedule, Source


@st.composite
def schedules(draw):
    stages, repeats, delay = draw(st.integers(2, 5)), draw(st.integers(1, 4)), draw(st.integers(1, 2))
    times = draw(st.integers(delay if repeats > 1 else 1, 3))
    return Schedule(stages=stages, microbatches=times * stages, repeats=repeats, delay=delay)


def walk(schedule):
    """``{(iteration, stage): (microbatch, repeat)}`` by simulation of each microbatch, without a formula."""
    arriving = collections.defaultdict(list)  # (iteration, stage) -> arriving microbatches
    queue = collections.deque((microbatch, 0) for microbatch in range(schedule.microbatches))
    back = collections.deque()
    found, iteration, finished = {}, 0, 0
    while finished < schedule.microbatches:
        back.extend(arriving.pop((iteration, "back"), []))
        at = {0: queue.popleft() if queue else back.popleft() if back else None}
        for stage in range(1, schedule.stages):
            at[stage] = next(iter(arriving.pop((iteration, stage), [])), None)
        for stage, who in at.items():
            if who is None:
                continue
            found[iteration, stage] = who
            if stage < schedule.stages - 1:
                arriving[iteration + schedule.delay, stage + 1].append(who)
            elif who[1] < schedule.repeats - 1:
                arriving[iteration + schedule.delay, "back"].append((who[0], who[1] + 1))
            else:
                finished += 1
        iteration += 1
    return found, iteration


def simulate(schedule):
    """Buffers that hold names of microbatches, moved as the schedule defines; returns inputs and outputs."""
    S, M, W = schedule.stages, schedule.microbatches, schedule.slots
    waiting = [[(stage * W + slot, 0) for slot in range(W)] for stage in range(S)]
    shift, mover, previous, storage = [None] * S, [None] * S, [None] * S, [None] * M
    taken = {}
    for iteration in range(schedule.iterations):
        slot, source = schedule.slot(iteration), schedule.source(iteration)
        first = {
            Source.WAITING: lambda slot=slot: waiting[0][slot],
            Source.STORAGE: lambda iteration=iteration: storage[schedule.stored(iteration)],
            Source.SHIFT: lambda shift=shift: shift[0],
        }[source]()
        inputs = [first, *shift[1:]]
        taken |= {(iteration, stage): who for stage, who in enumerate(inputs) if who is not None}
        out = [None if who is None else (who[0], who[1] + (s == S - 1)) for s, who in enumerate(inputs)]
        for stage in range(S):
            waiting[stage][slot] = waiting[stage + 1][slot] if stage < S - 1 else out[-1]
        storage[schedule.storing(iteration)] = mover[-1]
        mover = out
        leaving, previous = (previous, out) if schedule.delay == 2 else (out, None)
        shift = [leaving[-1] if schedule.rotates else None, *leaving[:-1]]
    ordered = [np.roll(np.array(row, "i,i"), -schedule.first_slot) for row in waiting]
    return taken, [tuple(map(int, who)) for row in ordered for who in row]


@settings(deadline=None, max_examples=120)
@given(schedules())
def test_microbatches_are_in_the_order_of_the_walk(schedule):
    found, iterations = walk(schedule)
    assert schedule.iterations == iterations
    for at, who in found.items():
        assert (schedule.microbatch(*at), schedule.repeat(*at)) == who


@settings(deadline=None, max_examples=120)
@given(schedules())
def test_buffers_hand_each_stage_its_microbatch_and_give_the_outputs_in_order(schedule):
    found, _ = walk(schedule)
    taken, outputs = simulate(schedule)
    assert {place: taken.get(place) for place in found} == found
    assert outputs == [(microbatch, schedule.repeats) for microbatch in range(schedule.microbatches)]


@settings(deadline=None, max_examples=120)
@given(schedules())
def test_numbers_that_index_something_are_inside_it_at_every_iteration_and_in_bubbles(schedule):
    """A bubble also computes: it would read past the end of the weights, or clip silently."""
    S, M, R = schedule.stages, schedule.microbatches, schedule.repeats
    found, iterations = walk(schedule)
    for stage in range(S):
        worked = sorted(iteration for iteration, at in found if at == stage)
        repeats = [schedule.repeat(iteration, stage) for iteration in range(iterations)]
        assert repeats == sorted(repeats) and set(repeats) == set(range(R))
        assert repeats[: worked[0]] == [0] * worked[0]
        assert repeats[worked[-1] :] == [R - 1] * (iterations - worked[-1])
        assert {schedule.microbatch(iteration, stage) for iteration in range(iterations)} == set(range(M))
    everywhere = range(iterations + 2)
    assert {schedule.slot(iteration) for iteration in everywhere} == set(range(schedule.slots))
    for name in ("stored", "storing"):
        assert {getattr(schedule, name)(iteration) for iteration in everywhere} == set(range(M))


@pytest.mark.long
@settings(deadline=None, max_examples=20)
@given(schedules())
def test_traced_numbers_are_the_python_ones(schedule):
    iterations, stages = np.arange(schedule.iterations), np.arange(schedule.stages)
    pairs = [(i, s) for i in iterations.tolist() for s in stages.tolist()]
    for name in ("processed", "microbatch", "repeat"):
        method = getattr(schedule, name)
        traced = jax.jit(lambda i, s, method=method: method(i[:, None], s[None]))(iterations, stages)
        assert np.array_equal(np.ravel(traced), [method(i, s) for i, s in pairs])
        assert traced.dtype == jnp.int32
    for name in ("slot", "stored", "storing"):
        method = getattr(schedule, name)
        assert np.array_equal(jax.jit(method)(iterations), [method(i) for i in iterations.tolist()])


@pytest.mark.parametrize(
    ("microbatches", "delay", "kept"), [(4, 1, False), (8, 1, True), (8, 2, False), (12, 2, True)]
)
def test_storage_exists_if_microbatches_return_early(microbatches, delay, kept):
    schedule = Schedule(stages=4, microbatches=microbatches, repeats=2, delay=delay)
    assert schedule.has_storage == kept and schedule.rotates == (not kept)
    assert schedule.source(microbatches) is (Source.STORAGE if kept else Source.SHIFT)
    assert not Schedule(stages=4, microbatches=microbatches, delay=delay).has_storage
