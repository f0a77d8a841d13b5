"""Intermediate representations: StableHLO, optimised HLO, jaxprs, and the private names of JAX that they need.

Reads programs and compares nothing. Imports no other package of the engine. It contains `stablehlo` (the program that
the prover reads, and its loops and dtypes), `hlo` (compiled programs), `jax_internals` (every private name, with the
versions it was checked on).
"""
