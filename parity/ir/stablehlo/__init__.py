"""Lowered programs: the reader that the prover uses, source locations, live operations, loops, dtypes."""
