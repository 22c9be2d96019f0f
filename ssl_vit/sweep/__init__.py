"""A sweep: one command over options and seeds, every run in a directory of its own; needs no torch."""
