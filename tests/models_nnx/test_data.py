"""Packed batches: documents that never mix, padding, determinism."""

import chex
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models_nnx.shared.data import BOUNDARY, PADDING, VOCAB, documents, packed_batch

NAMES = ("tokens", "targets", "segments", "positions", "weights")
SIZES = [(5, 16, 0), (7, 40, 1), (3, 129, 2), (2, 1000, 3)]


def pieces(batch):
    """``(row, start, end)`` of every document."""
    for row, segments in enumerate(batch["segments"]):
        for segment in range(1, segments.max() + 1):
            where = np.flatnonzero(segments == segment)
            assert where.size == where[-1] - where[0] + 1, "a document is in one piece"
            yield row, where[0], where[-1] + 1


@pytest.mark.parametrize("rows, length, seed", SIZES)
def test_every_row_has_three_documents_in_order_then_padding(rows, length, seed):
    batch = packed_batch(rows, length, seed)
    assert tuple(batch) == NAMES
    for array in batch.values():
        chex.assert_shape(array, (rows, length))
        chex.assert_type(array, np.int32)
    segments = batch["segments"]
    assert (segments.max(axis=1) >= 3).all() and (segments[:, -1] == 0).all()
    for row in segments:
        filled = row[: np.count_nonzero(row)]
        assert (np.diff(filled) >= 0).all() and filled[0] == 1 and not row[filled.size :].any()
        assert np.count_nonzero(row == 0) < length / 2
    padding = segments == 0
    for name, fill in {"tokens": PADDING, "targets": PADDING, "positions": 0, "weights": 0}.items():
        assert (batch[name][padding] == fill).all()
    assert (batch["weights"][~padding] == 1).all()


@pytest.mark.parametrize("rows, length, seed", SIZES)
def test_targets_are_the_next_token_of_the_same_document(rows, length, seed):
    batch = packed_batch(rows, length, seed)
    text = b"\n".join(documents())
    sizes = set()
    for row, start, end in pieces(batch):
        tokens, targets = batch["tokens"][row, start:end], batch["targets"][row, start:end]
        np.testing.assert_array_equal(targets[:-1], tokens[1:])
        assert tokens[0] == BOUNDARY == targets[-1]
        assert (tokens[1:] < 256).all() and bytes(tokens[1:].tolist()) in text.replace(b"\n", b" ") + text
        np.testing.assert_array_equal(batch["positions"][row, start:end], np.arange(end - start))
        sizes.add(end - start)
    assert len(sizes) > 1 and min(sizes) >= 2


def test_the_seed_decides_everything():
    first, again, other = packed_batch(4, 40, 5), packed_batch(4, 40, 5), packed_batch(4, 40, 6)
    for name in NAMES:
        np.testing.assert_array_equal(first[name], again[name])
        assert (first[name] != other[name]).any()
    assert len({row.tobytes() for row in first["tokens"]}) == 4


@settings(deadline=None, max_examples=50)
@given(seeds=st.sets(st.integers(0, 10**6), min_size=1, max_size=3), rows=st.integers(1, 6))
def test_no_row_of_a_seed_is_a_row_of_another_seed(seeds, rows):
    """Neighbours among them: if a row were drawn from seed plus row, the next seed would repeat it."""
    batches = [packed_batch(rows, 96, seed) for seed in seeds | {seed + 1 for seed in seeds}]
    lines = [row.tobytes() for batch in batches for row in batch["tokens"]]
    assert len(set(lines)) == len(lines)


@pytest.mark.parametrize("rows, length", [(1, 96), (4, 96), (3, 40), (2, 257)])
def test_every_place_of_every_row_changes_with_the_seed(rows, length):
    """This covers all inputs of a model: tokens, targets, and the bounds of documents."""
    seeds = [packed_batch(rows, length, seed) for seed in range(60)]
    filled = length // 2
    for name in ("tokens", "targets"):
        values = np.stack([batch[name] for batch in seeds])
        for row in range(rows):
            counts = [len(np.unique(values[:, row, place])) for place in range(1, filled)]
            assert min(counts) > 8, (name, row, counts)
    for name in ("segments", "positions", "weights"):
        values = np.stack([batch[name] for batch in seeds])
        assert all(len({line.tobytes() for line in values[:, row]}) > 8 for row in range(rows)), name


def test_padding_is_unequal_between_rows():
    assert len(set((packed_batch(8, 40, 0)["segments"] == 0).sum(axis=1).tolist())) > 2


def test_the_text_is_plain_ascii_and_the_vocabulary_holds_it():
    assert len(documents()) > 5
    for document in documents():
        assert document.isascii() and document.decode().isprintable() and document == document.strip()
    assert len({BOUNDARY, PADDING} | set(range(256))) == VOCAB and max(BOUNDARY, PADDING) == VOCAB - 1


def test_a_length_beyond_the_cache_is_refused():
    packed_batch(2, 16, 0)
    with pytest.raises(ValueError, match="packed_batch length: got 15, expected at least 16"):
        packed_batch(2, 15, 0)
