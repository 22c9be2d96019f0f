"""From numbers to what may be said: advice, contract, sentences, tables."""
