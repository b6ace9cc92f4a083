"""Load what every worker needs, in the process that workers are forked from; nothing imports this but that process."""

import sys

import pipelines.worker_steps  # noqa: F401
from t5prep.prepare import code_digest

# The statements of the code that makes tokens stay in memory: each worker only adds those of its task.
code_digest.of_task(b"")

# A worker that fails before it has begun was forked for a run that was stopped meanwhile, or breaks the pool, which is
# explained in the process that started it: here nobody reads a traceback.
sys.excepthook = lambda *_: None
