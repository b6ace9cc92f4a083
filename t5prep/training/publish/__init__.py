"""A run → a Hugging Face directory, a SavedModel, a model on the Hub."""
