"""The runtime: functions of TensorFlow in; programs on the devices of a TPU, GPUs or CPUs out, executed by PJRT."""
