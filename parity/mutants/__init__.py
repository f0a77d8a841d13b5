"""Mutation testing: plants bugs and reports which are caught (the kill matrix). Benign edits must pass.

A mutant is data: a small patch, the case or test that must kill it, the expected text. Each is tried on a copy of the
packages that it patches, by the command line in a separate process. Imports:
`report` and below. Gives: `read_mutants`, `try_mutants`, `Outcome`, and the matrix as table, Markdown and JSON.
"""
