"""What both twins share and no framework touches: configuration, operations, meshes and shardings, schedules, storage.

Imports no Flax. Parity of the twins cannot see a fault in here, so independent oracles test it.
"""
