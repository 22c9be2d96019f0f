"""Pictures of what a model does."""
