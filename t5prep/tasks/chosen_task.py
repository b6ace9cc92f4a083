"""Combine a task with its chosen options, for preparing and predicting."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from t5prep.reading.rows import Record
from t5prep.tasks import options as task_options
from t5prep.tasks.columns import Columns
from t5prep.tasks.example import Example
from t5prep.tasks.task import Spans, Task
from t5prep.tasks.template import Template


@dataclasses.dataclass(frozen=True)
class ChosenTask:
    """Hold a task, the name it is known by, and its options."""

    name: str
    task: Task
    options: Any

    def to_example(self, record: Record) -> Example:
        """Return the example of a row. Raises Reject."""
        return self.task.to_example(record, self.options)

    @functools.cached_property
    def columns(self) -> Columns:
        """Return the columns that are read. Raises UsageError for options that name none."""
        columns = self.task.columns
        return columns if isinstance(columns, Columns) else columns(self.options)

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Return the endings of files that belong together line by line. Raises UsageError for options that are not endings."""
        pairs = self.task.corpus.pairs
        return tuple(pairs(self.options) if callable(pairs) else pairs)

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the words of a classification, in the order of a confusion matrix."""
        classes = self.task.classes
        return tuple(classes(self.options) if callable(classes) else classes)

    @property
    def spans(self) -> Spans | None:
        """Return how spans of texts are hidden; None for a task with targets of its own."""
        return self.task.spans(self.options) if self.task.spans else None

    @property
    def template(self) -> Template | None:
        """Return how columns make most examples; None where there is no template."""
        return self.task.template(self.options) if self.task.template else None

    @property
    def files(self) -> tuple[str, ...]:
        """Return the patterns of the files that are read."""
        values = dataclasses.asdict(self.options)
        return tuple(pattern.format(**values) for pattern in self.task.corpus.files)

    @property
    def without_markup(self) -> str:
        """Return the option that removes HTML tags from the texts, as the user types it; "" where there is none."""
        for field in dataclasses.fields(self.options):
            if value := field.metadata["removes_markup"]:
                return task_options.spelled(field.name, value)
        return ""


def choose(name: str, task: Task, given: Mapping[str, Any]) -> ChosenTask:
    """Return a task with the given options; those not given have their defaults. Raises UsageError."""
    return ChosenTask(name, task, task_options.build(task.options, given))
