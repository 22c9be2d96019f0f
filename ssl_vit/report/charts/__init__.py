"""Charts as SVG and in print."""
