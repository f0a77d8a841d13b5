"""Mutation testing: plants bugs and reports which are caught (the kill matrix). Benign edits must pass.

A mutant is data: a small patch, the case or test that must kill it, the expected text. Each is tried on a copy of the
packages that it patches, by the command line in a separate process. Imports:
`report` and below. Gives: `read_mutants`, `try_mutants`, `Outcome`, and the matrix as table, Markdown and JSON.
"""

from parity.mutants.matrix import as_json, as_markdown, print_matrix, read_outcomes, succeeded
from parity.mutants.mutant import Edit, Mutant, MutantError, read_mutants
from parity.mutants.trial import Outcome, Status, sources_of, try_mutants

__all__ = [
    "Edit",
    "Mutant",
    "MutantError",
    "Outcome",
    "Status",
    "as_json",
    "as_markdown",
    "print_matrix",
    "read_mutants",
    "read_outcomes",
    "sources_of",
    "succeeded",
    "try_mutants",
]
