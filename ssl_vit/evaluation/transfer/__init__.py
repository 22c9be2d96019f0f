"""One backbone on several labelled sets: what a suite names, how its sets are judged, and their table."""
