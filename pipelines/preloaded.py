"""Import what every worker needs, in the process that workers are forked from. Only the fork server imports this module.

See docs/decisions/023-load-everything-before-workers-fork.md
"""

import contextlib
import gc
import os
import sys

gc.disable()  # all imported objects stay, and workers collect garbage themselves

import pyarrow  # noqa: E402

import pipelines.steps  # noqa: E402, F401
from pipelines import pool  # noqa: E402
from t5prep.errors import T5prepError  # noqa: E402
from t5prep.tokens import loading  # noqa: E402

# Creating its first array, pyarrow imports pandas if that is installed (0.3 s): here once instead of in each worker.
pyarrow.array([0])
if tokenizer := os.environ.get(pool.TOKENIZER):
    with contextlib.suppress(T5prepError):  # the process that requests the tokenizer reports it
        loading.load(tokenizer)
gc.freeze()

# A worker that fails here belongs to a stopped run, or breaks the pool, which the parent process explains. Its
# traceback would only confuse.
sys.excepthook = lambda *_: None
