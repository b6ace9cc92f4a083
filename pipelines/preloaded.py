"""Load what every worker needs, in the process that workers are forked from; nothing imports this but that process."""

import sys

import pipelines.steps  # noqa: F401

# A worker that fails before it has begun was forked for a run that was stopped meanwhile, or breaks the pool, which is
# explained in the process that started it: here nobody reads a traceback.
sys.excepthook = lambda *_: None
