"""Builds and their programs, state as ``{path: leaf}``, meshes and TPU slices.

A build turns a Linen or an NNX model into pure functions of flat trees. Imports: leaf modules only.
Gives: `build`, `tree`, `meshes`. The packages above use these terms.
"""
