"""From a red case to its cause: the operation, module, weight, settings, size or commit behind one failure.

One file a search, which declares a `Search`, and one line in `registry.AXES`, whose order is that in which they
are asked. All hold the case to one `Signature`, so that none drifts to another failure. Imports: `running` and
everything below. Gives: `bisect_case`, the `Report` that people read, and `repro.write`.
"""
