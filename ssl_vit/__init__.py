"""Self-supervised pre-training of Vision Transformers, judged against the labelled baseline."""

__version__ = "0.1.0"
