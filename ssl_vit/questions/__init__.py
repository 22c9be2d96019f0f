"""Six questions about Vision Transformers, answered on the images at hand: trainings, numbers, figures, sentences."""
