"""One file per question: what it needs trained, how it is judged, what is drawn and said. Needs no torch."""
