"""Tasks: a row (record) in, a text-to-text example out; one file a corpus, in `corpora/` or the user's own.

What a file that defines a task imports: `from t5prep.tasks import Columns, Example, Record, Reject, Task`.
"""

from t5prep.errors import Reject
from t5prep.reading.rows import Record
from t5prep.tasks.columns import Columns
from t5prep.tasks.example import EOS, Example, Protected
from t5prep.tasks.options import option
from t5prep.tasks.task import Corpus, NoOptions, Spans, Task

__all__ = [
    "EOS",
    "Columns",
    "Corpus",
    "Example",
    "NoOptions",
    "Protected",
    "Record",
    "Reject",
    "Spans",
    "Task",
    "option",
]
