"""Everything that finds test images where they should not be."""
