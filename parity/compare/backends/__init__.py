"""Backends lower, compile and run programs: cpu, tpu, gpu, the TPU compiler ahead of time, lowering only.

Compiles that may crash or take all memory run in worker processes and are cached on disk. Imports: `builds` and `ir`.
Gives: `registry.find`; `compiler`, `workers` and `cache` serve it. A new backend is one file and one line in
`registry`.
"""
