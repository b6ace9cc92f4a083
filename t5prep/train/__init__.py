"""Training: a prepared dataset in, a run with checkpoints, metrics and an exported model out."""

from t5prep import make_callable

make_callable(__name__)
