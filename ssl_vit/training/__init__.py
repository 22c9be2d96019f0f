"""The one loop, and what a run needs before and after it."""
