"""Planning: a model, settings and a TPU in; does it fit, how fast and for how much, out, by the real TPU compiler."""

from t5prep import make_callable

make_callable(__name__)
