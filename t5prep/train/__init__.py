"""Train a T5: from a prepared dataset to a run with checkpoints, metrics and an exported model."""

from t5prep import make_callable

make_callable(__name__)
