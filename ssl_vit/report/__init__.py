"""From a verdict's raw results to its report; reads folders, needs no torch."""
