"""Train a T5 or an encoder: from a prepared dataset to a run with checkpoints, metrics and an exported model."""

import os

from t5prep import make_callable

# TensorFlow's messages about its own build: errors are raised, its log is about GPUs. Set before anything imports it.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

make_callable(__name__)
