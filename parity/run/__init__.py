"""A run: cases in sequence, in parallel in workers, or each in several processes; an error in one does not stop others.

Imports: `channels` and everything below. Gives: `run.run_case`, `run.CaseRunner`, `schedule.execute`, and the results:
`record.CaseResult` and `record.Report`.
"""
