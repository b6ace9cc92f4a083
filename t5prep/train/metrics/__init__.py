"""Compute metrics of predictions: one file for each, and `table`, which says what every metric is."""
