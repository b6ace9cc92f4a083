"""Apply several filters, one after the other, to the texts of an example."""

import dataclasses
import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from t5prep.errors import Reject
from t5prep.prepare.filters import grammar, user_files
from t5prep.prepare.filters.grammar import Filter
from t5prep.tasks import example_table
from t5prep.tasks.example import Example, Part, Protected, text_of


class Filtered(NamedTuple):
    """An example as filters left it: why it is rejected ("" where it is not), and the names of those that changed it."""

    example: Example
    reason: str = ""
    changed: tuple[str, ...] = ()


class FilteredTable(NamedTuple):
    """A table of examples (example_table.SCHEMA) as filters left it, and the reason of each row that has one.

    `changed` are the names of the filters that changed each row, or None; None where there are no filters.
    """

    examples: pa.Table
    reasons: dict[int, str]
    changed: list[tuple[str, ...] | None] | None


class Chain:
    """Apply filters in the order in which they were given."""

    def __init__(self, texts: Sequence[str]) -> None:
        """Raise UsageError for what is not a filter."""
        self._filters = [grammar.parse(text) for text in texts]
        self.judges_tokens = any(hasattr(filter, "judge_tokens") for _, filter in self._filters)
        self.modules = sorted({type(filter).__module__ for _, filter in self._filters})

    def __call__(self, example: Example) -> Filtered:
        """Return the example as it goes on, and why it is rejected or who changed it.

        An example of several parts is judged as one text, its parts in lines of their own. What changes a text changes
        each part by itself; what masks changes targets and references too.
        """
        changed: list[str] = []
        for name, filter in self._filters:
            try:
                before, example = example, _applied(filter, example)
            except Reject as reject:
                return Filtered(example, f"{name} {reject}")
            if example != before:
                changed.append(name)
        return Filtered(example, changed=tuple(changed))

    def of_table(self, examples: pa.Table) -> FilteredTable:
        """Return a table of examples as it goes on; rows that made no example stay as they are."""
        if not self._filters:
            return FilteredTable(examples, example_table.reasons_of(examples), None)
        before = example_table.examples_of(examples)
        filtered = [None if isinstance(one, str) else self(one) for one in before]
        after = [old if new is None else new.example for old, new in zip(before, filtered, strict=True)]
        if after != before:
            others = {name: examples[name].to_pylist() for name in ("record_id", "group")}
            examples = example_table.made_of(examples["row"].to_pylist(), after, **others)
        reasons = {row: one.reason for row, one in enumerate(filtered) if one and one.reason}
        reasons |= example_table.reasons_of(examples)
        return FilteredTable(examples, reasons, [(one and one.changed) or None for one in filtered])

    def judge_tokens(self, count: int) -> str:
        """Return why an input of so many tokens is rejected, or ""."""
        for name, filter in self._filters:
            if judge := getattr(filter, "judge_tokens", None):
                try:
                    judge(count)
                except Reject as reject:
                    return f"{name} {reject}"
        return ""

    def files(self) -> dict[str, str]:
        """Return the files of the user's that the filters read, and their SHA-256 (hex)."""
        paths = [path for _, filter in self._filters for path in getattr(filter, "files", ())]
        return {path: hashlib.sha256(user_files.read(path)).hexdigest() for path in paths}


def _applied(filter: Filter, example: Example) -> Example:
    """Return the example with its texts as a filter returns them. Raises Reject."""
    if getattr(filter, "masks", False):
        return dataclasses.replace(
            example,
            inputs=_parts(filter, example.inputs),
            targets=filter(example.targets),
            references=tuple(map(filter, example.references)),
        )
    text = text_of(example.inputs)
    if (after := filter(text)) == text:
        return example
    return dataclasses.replace(
        example, inputs=after if isinstance(example.inputs, str) else _parts(filter, example.inputs)
    )


def _parts(filter: Filter, inputs: str | tuple[Part, ...]) -> str | tuple[Part, ...]:
    if isinstance(inputs, str):
        return filter(inputs)
    return tuple(
        Protected(filter(part.text)) if isinstance(part, Protected) else filter(part) if isinstance(part, str) else part
        for part in inputs
    )
