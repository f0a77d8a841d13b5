"""Finds the cause of a failing case: the operation, module, weight, settings, size or commit.

Read `axis.py` first: a `Question` about a failure, and the `SearchResult` of it. `report.py` has the searches
by name (`AXES`): `op` and `module` evaluate both programs (`parity.compare.origin`), the others run other cases.
`commit` and `version` run the case elsewhere (`history`), and `repro` writes it to a folder. One `Signature` restricts
all of them to one failure.
"""
