"""A run: cases in sequence, in workers, on Ray, or each in several processes; an error in one does not stop others."""
