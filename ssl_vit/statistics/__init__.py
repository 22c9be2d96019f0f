"""Paired differences, families of comparisons, labels needed; needs no torch."""
