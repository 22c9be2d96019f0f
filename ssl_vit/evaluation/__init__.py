"""What a backbone is worth: features, neighbours, probes, metrics."""
