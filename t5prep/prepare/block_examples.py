"""Make a block of rows one table of examples (tasks/example_table.py).

The block is read as columns (reading/columns.py). A template fills the table from them (tasks/filling.py); rows that it
does not describe, and all rows of a task without one, are made examples one by one by the task's own function. This is
the only loop over rows.
"""

import numpy as np
import pyarrow as pa

from t5prep.dataset.settings import Settings
from t5prep.errors import Reject, SourceError, T5prepError, TaskError
from t5prep.reading import columns, rows
from t5prep.reading.blocks import Block
from t5prep.reading.rows import Row
from t5prep.tasks import columns as task_columns
from t5prep.tasks import example_table, filling, registry
from t5prep.tasks.example import Example, problem
from t5prep.tasks.task import ChosenTask


class BlockExamples:
    """Make the examples of blocks of one task; threads may share it. `columns` are the names of those that are read."""

    def __init__(self, settings: Settings, task: ChosenTask) -> None:
        self._task, self._columns, self._template = task, task.columns, task.template
        self._group = settings.group_column
        self._wanted = [*self._columns.all, *([self._group] if self._group else [])]
        self.columns = tuple(dict.fromkeys(task_columns.names(self._wanted)))

    def __call__(self, block: Block) -> pa.Table:
        """Return the examples of all rows but blank ones (example_table.SCHEMA), numbered from the block's first row on.

        Those that the template describes come first. Raises SourceError for a missing column, TaskError where the task
        fails at a row.
        """
        if block.columns and (lacks := task_columns.missing(self._wanted, block.columns)):
            raise SourceError(f"{block.file.name} has no column {lacks}")
        read = columns.read(block, names=self.columns)
        tables, left = [], np.ones(len(read.numbers), bool)
        if self._template is not None:
            read = columns.gathered(read, self.columns, there=block.columns)
            names = self._columns.found_in(read.table.column_names)
            left = np.ones(len(read.numbers), bool)
            if names is not None and set(self._template.columns) <= names.keys():
                text = {name: columns.text_of(read.table[name]) for name in read.table.column_names}
                filled = filling.fill(
                    self._template,
                    {first: text[name] for first, name in names.items()},
                    read.numbers - block.first_row,
                    record_id=text.get(self._columns.id_name),
                    group=text.get(self._group),
                )
                tables, left = [filled.examples], ~filled.described
        if not tables or left.any() or read.others:
            tables.append(self._by_task(read.rows(left), block))
        return tables[0] if len(tables) == 1 else pa.concat_tables(tables).combine_chunks()

    def _by_task(self, rest: list[Row], block: Block) -> pa.Table:
        """Return the examples of some rows, made one by one by the task's own function."""
        records = [row.record or {} for row in rest]
        ids, groups = ([record.get(name) for record in records] for name in (self._columns.id_name, self._group))
        return example_table.made_of(
            [row.number - block.first_row for row in rest],
            [self._example(row, block) for row in rest],
            record_id=[None if id is None else str(id) for id in ids],
            group=[None if group in (None, "") else str(group) for group in groups],
        )

    def _example(self, row: Row, block: Block) -> Example | str:
        """Return the example of a row, or why it makes none. Raises TaskError where the task fails."""
        if row.record is None:
            return row.reason
        try:
            example = self._task.to_example(row.record)
            if self._group:
                rows.text(row.record, self._group, "")  # raises Reject for a list
        except Reject as reject:
            return str(reject)
        except KeyError as error:
            if error.args[0] in self._columns.names:
                return f"missing field: {error.args[0]}"
            raise self._failed(row, block, error) from error
        except T5prepError:
            raise
        except (Exception, SystemExit) as error:
            raise self._failed(row, block, error) from error
        if wrong := problem(example):
            raise self._failed(row, block, TypeError(wrong))
        return example

    def _failed(self, row: Row, block: Block, error: BaseException) -> TaskError:
        """Return the error of a task that fails at a row, as a sentence that names the line of its code."""
        code = getattr(self._task.task.to_example, "__code__", None)
        where = registry.line_of(error, code.co_filename) if code else ""
        unread = " Only columns that its Columns name are read." if isinstance(error, KeyError) else ""
        return TaskError(
            f"the task {self._task.name} fails at {block.file.name}, row {row.number}: {registry.said(error)}"
            f"{f' ({where})' if where else ''}. Mend its to_example, or let it raise Reject for such rows.{unread}"
        )
