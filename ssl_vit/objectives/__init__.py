"""What is minimised: one file per objective."""
