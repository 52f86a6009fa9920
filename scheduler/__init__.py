"""Which sequence computes what, and when. Pure: no clock, no I/O, no randomness; the same inputs give the same plans."""
