"""Predictions and targets of a split → scores."""
