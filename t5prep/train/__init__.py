"""Training: a prepared dataset in, a run with checkpoints, metrics and an exported model out."""
