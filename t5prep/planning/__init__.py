"""Plan a training with the real TPU compiler: model, settings and TPU in; whether it fits, its time and price out."""
