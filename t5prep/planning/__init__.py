"""Plan a training run with the real TPU compiler: whether it fits a TPU, its estimated time, and its price."""
