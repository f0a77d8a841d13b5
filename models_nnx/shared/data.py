"""Packed batches of byte-level documents from a small bundled public-domain text."""

import functools
import importlib.resources

import numpy as np

__all__ = ["BOUNDARY", "PADDING", "VOCAB", "documents", "packed_batch"]

BOUNDARY = 256
"""Token that opens every document and is the target of its last byte."""

PADDING = 257
VOCAB = 258
MIN_SEGMENTS = 3


@functools.cache
def documents() -> tuple[bytes, ...]:
    """Returns the bundled documents, one paragraph each."""
    text = importlib.resources.files("models_nnx.shared").joinpath("text/public_domain.txt").read_bytes()
    return tuple(line for line in text.splitlines() if line)


def packed_batch(rows: int, length: int, seed: int) -> dict[str, np.ndarray]:
    """Packs document excerpts into rows of at least three segments, then at least one padding token.

    Args:
        rows: B.
        length: T, at least 16.
        seed: determines the excerpts.

    Returns:
        int32 ``[B, T]`` each: ``tokens``; ``targets`` (next token of the same document); ``segments``
        (from 1; 0 is padding); ``positions`` (from 0 in each document); ``weights`` (0 on padding).

    Raises:
        ValueError: ``length`` is too short for three segments and padding.
    """
    if length < 16:
        raise ValueError(f"packed_batch length: got {length}, expected at least 16")
    rng = np.random.default_rng(seed)
    batch = {
        name: np.full((rows, length), fill, np.int32)
        for name, fill in {
            "tokens": PADDING,
            "targets": PADDING,
            "segments": 0,
            "positions": 0,
            "weights": 0,
        }.items()
    }
    longest = (length - 1) // MIN_SEGMENTS
    for row in range(rows):
        start, segment = 0, 0
        while segment < MIN_SEGMENTS or length - 1 - start >= longest:
            segment += 1
            size = int(rng.integers(longest // 2, longest + 1))
            _place(batch, row, slice(start, start + size), segment, _excerpt(rng, size))
            start += size
    return batch


def _excerpt(rng: np.random.Generator, size: int) -> np.ndarray:
    """Returns ``size`` bytes of a random document, from a random place."""
    eligible = [document for document in documents() if len(document) >= size]
    whole = b" ".join(documents())
    document = eligible[rng.integers(len(eligible))] if eligible else whole * (size // len(whole) + 1)
    start = int(rng.integers(len(document) - size + 1))
    return np.frombuffer(document, np.uint8)[start : start + size].astype(np.int32)


def _place(batch: dict[str, np.ndarray], row: int, span: slice, segment: int, excerpt: np.ndarray) -> None:
    batch["tokens"][row, span] = [BOUNDARY, *excerpt[:-1]]
    batch["targets"][row, span] = [*excerpt[:-1], BOUNDARY]
    batch["segments"][row, span] = segment
    batch["positions"][row, span] = np.arange(excerpt.size)
    batch["weights"][row, span] = 1
