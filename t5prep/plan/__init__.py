"""Plan a training with the real TPU compiler: model, settings and TPU in; whether it fits, its time and price out."""

from t5prep import make_callable

make_callable(__name__)
