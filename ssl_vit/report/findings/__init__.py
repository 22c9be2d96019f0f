"""From numbers to what may be said: comparisons, contract, sentences, tables."""
