"""Framework-free code of both twins: configuration, operations, meshes and shardings, schedules, storage.

Imports no Flax. Comparing the twins cannot reveal a fault in this code, so independent oracles test it.
"""
