"""Campaigns that try to break the engine: edit a program or a source, compare, run, compare bits.

Nothing here is installed with the package. ``python tests/campaigns NAME --help`` runs one; `__main__` lists them.
"""
