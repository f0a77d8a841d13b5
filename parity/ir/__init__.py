"""Intermediate representations: StableHLO, optimised HLO, jaxprs, and the private names of JAX that they need.

Reads programs and compares nothing. Imports no other package of the engine. It contains `stablehlo` (the program that
the prover reads, its loops and dtypes), `hlo` (compiled programs) and `jax_internals` (every private name, with the
tested versions).
"""
