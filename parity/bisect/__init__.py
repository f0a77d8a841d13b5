"""Finds the cause of a failing case: the operation, module, weight, settings, size or commit.

Read `axis.py` first: a `Question` about a failure, the `Search` that each axis declares, and its `SearchResult`.
`report.py` lists the axes (`AXES`) and searches along them: `operation`, `module`, `weight`, `config`, `size`.
`operation` and `module` evaluate both programs (`parity.compare.origin`).
`commit` and `version` run the case elsewhere (`history`), and `repro` writes it to a folder. One `Signature` restricts
all of them to one failure.
"""
