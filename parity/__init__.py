"""The engine that proves or measures that two builds of a model are the same program."""
