"""A run's folder: checkpoints, their tensors, locks, opened models."""
