"""Load what every worker needs, in the process that workers are forked from; nothing imports this but that process."""

import gc
import sys

gc.disable()  # all that is imported stays, and workers collect garbage themselves

import pipelines.steps  # noqa: E402, F401

gc.freeze()

# A worker that fails before it has begun was forked for a run that was stopped meanwhile, or breaks the pool, which is
# explained in the process that started it: here nobody reads a traceback.
sys.excepthook = lambda *_: None
