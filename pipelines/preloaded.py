"""Load what every worker needs, in the process that workers are forked from; nothing imports this but that process."""

import pipelines.worker_steps  # noqa: F401
from t5prep.prepare import code_digest

# The statements of the code that makes tokens stay in memory: each worker only adds those of its task.
code_digest.of_task(b"")
