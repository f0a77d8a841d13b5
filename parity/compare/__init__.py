"""Evaluates a case: observes both sides as far as a channel needs, and makes each observation once.

Imports: everything below. Gives: `side.Side` and `evidence.Evidence`, which `Session` shares between cases;
readers of the evidence (`runs`, `stress`, `sample`, `one_program`, `certificate`, `modulo`); `pairing`, `layout` read
a side; `inspection` and `summary` serve the commands that only display.
"""
