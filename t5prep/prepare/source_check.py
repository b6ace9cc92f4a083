"""Look at the beginning of a source before any work: what would make all of it vain, and what it says of its labels."""

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from t5prep.dataset.settings import Settings
from t5prep.errors import SourceError, TokenizerError
from t5prep.reading import blocks, class_names, formats, json_documents, parallel_files
from t5prep.reading.blocks import Block
from t5prep.sources import RawFile, Resolved
from t5prep.tasks import columns as task_columns
from t5prep.tasks.task import ChosenTask
from t5prep.tokens.tokenizer import Tokenizer


def check(settings: Settings, task: ChosenTask, *, source: Resolved, tokenizer: Tokenizer) -> None:
    """Check for a missing column, and a class word that does not fit. Raises SourceError, UsageError or TokenizerError."""
    wanted = [*task.columns.all, *([settings.group_column] if settings.group_column else [])]
    if not source.files:
        raise SourceError(f"{source.uri} has no files that {settings.task} can read.")
    for word in task.classes if settings.target == "text" else ():
        pieces = tokenizer.encode(word)
        if len(pieces) + 1 > settings.target_length:
            raise TokenizerError(
                f'the class word "{word}" is {len(pieces)} tokens in {tokenizer.name}, and with EOS does not fit '
                f"--target-length {settings.target_length}. Ask for --target-length {len(pieces) + 1}"
            )
    elements = parallel_files.match(source.files, task.pairs)
    if not settings.format and not task.task.corpus.format:
        formats.check_names([one.name for one in elements if isinstance(one, RawFile)], uri=source.uri)
    first = elements[0]
    parts = parallel_files.scan(
        first,
        kind=settings.format,
        encoding=settings.encoding,
        otherwise=task.task.corpus.format,
        records=settings.records,
        delimiter=settings.delimiter,
    )
    block = next(parts, None)
    record = _first_record(block)
    columns: Sequence[str] = (block.columns if block else ()) or tuple(record)
    if columns and (missing := task_columns.missing(wanted, columns)):
        name = parallel_files.files(first)[0].name
        if not settings.records and (path := json_documents.suggest(record)):
            raise SourceError(
                f'{name} is one JSON document, with {", ".join(record)}. Say where its rows are: --records "{path}"'
            )
        raise SourceError(f"{name} has no column {missing}")


def _first_record(block: Block | None) -> Mapping[str, Any]:
    """Return the first row of a block whose format names no columns before the rows; {} for any other."""
    if block is None or block.columns:
        return {}
    return next((row.record for row in blocks.read(block) if row.record), {})


def with_label_names(settings: Settings, *, source: Resolved) -> Settings:
    """Return the settings with the words that the source gives its numbered classes, where the user gave none.

    A task takes part that has the options `label_map` and `targets_column`.
    """
    options = settings.options
    column = options.get("targets_column")
    if not source.files or not column or options.get("label_map", "given") != "" or options.get("targets"):
        return settings
    names = class_names.of_source(source, column)
    if not names:
        return settings
    label_map = class_names.label_map(names)
    if not label_map:
        print(f"{column} has names with a comma or =, so its numbers stay: {', '.join(names)}", file=sys.stderr)
        return settings
    return dataclasses.replace(settings, options={**options, "label_map": label_map})


def without_documents(source: Resolved, *, kind: str = "") -> Resolved:
    """Return a source without the files beside its data that hold no rows: a licence, a README. They are named on stderr."""
    rows, documents = formats.without_documents([file.name for file in source.files], kind=kind)
    if not documents:
        return source
    print(f"not read, because they are about the data: {', '.join(documents)}", file=sys.stderr)
    return dataclasses.replace(source, files=tuple(file for file in source.files if file.name in set(rows)))
