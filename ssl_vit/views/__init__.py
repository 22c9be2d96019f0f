"""From decoded batches to what an objective reads; every random number of a step is drawn here."""
