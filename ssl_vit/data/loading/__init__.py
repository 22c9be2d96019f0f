"""Ordered batches: decoded by workers, kept where they fit, sent to the device."""
