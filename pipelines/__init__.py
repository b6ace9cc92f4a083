"""Executors of the stages of `t5prep.prepare`: processes of this machine, or Beam on Prism, Flink and Dataflow."""

import os

# OpenBLAS starts a thread for each core in each worker process, although preparing multiplies no matrices. It reads
# this variable when NumPy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
