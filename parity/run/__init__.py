"""A run: cases one by one, side by side in workers, or each in several processes; an error in one stops none.

Imports: `channels` and everything below. Gives: `run.run_case`, `run.run_cases`, `parallel` and `processes`.
"""
