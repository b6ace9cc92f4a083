"""Run functions of TensorFlow as compiled programs on the devices of a TPU, GPUs or CPUs, through PJRT."""
