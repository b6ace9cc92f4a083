"""Wire the stages of `t5prep.prepare` with Beam for this machine, Prism, Flink and Dataflow."""

import os

# NumPy's BLAS starts a thread for each core in each worker, and no matrix is multiplied here. It reads this when it is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
