"""The cost of the harness itself: against a script without it, and over sizes."""
