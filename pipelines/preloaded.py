"""Load what every worker needs, in the process that workers are forked from; nothing imports this but that process."""

import contextlib
import gc
import os
import sys

gc.disable()  # all that is imported stays, and workers collect garbage themselves

import pyarrow  # noqa: E402

import pipelines.steps  # noqa: E402, F401
from pipelines import pool  # noqa: E402
from t5prep.errors import T5prepError  # noqa: E402
from t5prep.tokens import loading  # noqa: E402

# With its first array pyarrow imports pandas, where that is installed: here once, and not in each worker.
pyarrow.array([0])
if tokenizer := os.environ.get(pool.TOKENIZER):
    with contextlib.suppress(T5prepError):  # said by the process that asks for it
        loading.load(tokenizer)
gc.freeze()

# A worker that fails before it has begun was forked for a run that was stopped meanwhile, or breaks the pool, which is
# explained in the process that started it: here nobody reads a traceback.
sys.excepthook = lambda *_: None
