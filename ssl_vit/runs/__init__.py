"""Run directories, their identity, and result files; needs no torch."""
