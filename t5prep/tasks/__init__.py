"""Turn a row (record) into a text-to-text example: one file for each corpus, in `corpora/` or written by the user.

A file that defines a task imports from here: `from t5prep.tasks import Columns, Example, Record, Reject, Task`.
"""

from t5prep.errors import Reject
from t5prep.options.fields import option
from t5prep.reading.rows import Record
from t5prep.tasks.example import EOS, Example, Protected
from t5prep.tasks.task import Columns, Corpus, NoOptions, Spans, Task

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
