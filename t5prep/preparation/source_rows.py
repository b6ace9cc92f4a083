"""Read the rows of a dataset's source again, as its manifest names it, and make their examples again.

The author of the dataset chose its source and its code, and may be a stranger. So no address is read that this user
has never read before. No code is executed that this user has neither run nor trusts.
"""

import functools
import json
import shlex
import sys
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from t5prep import sources
from t5prep.dataset import manifest
from t5prep.dataset.prepared import Dataset
from t5prep.errors import DatasetError, SourceError
from t5prep.io import addresses, paths, trusted_code
from t5prep.preparation import row_limit
from t5prep.preparation.block_tokenizer import BlockExamples
from t5prep.preparation.row_limit import LimitedFile
from t5prep.reading import blocks
from t5prep.reading.blocks import Block
from t5prep.reading.rows import Row
from t5prep.sources import RawFile, raw
from t5prep.tasks import example_table, registry
from t5prep.tasks.example import Example
from t5prep.tasks.filters import rules
from t5prep.tasks.filters.chain import Chain, code_files
from t5prep.tasks.registry import Definition
from t5prep.tasks.task import ChosenTask


class SourceRow(NamedTuple):
    """A row of the source: its block, its number in the file, and the table of its example, which is empty for a blank row."""

    block: Block
    number: int
    examples: pa.Table


class SourceRows:
    """Read the rows of a dataset's source.

    `source` is its current address, if the manifest's address is outdated. `trust_code` allows code that this user
    has never run. The source, the task and the filters are opened on first use.
    """

    def __init__(self, dataset: Dataset, *, source: str = "", trust_code: bool = False) -> None:
        self.dataset, self._settings = dataset, dataset.manifest.settings
        self._source, self._trust_code = source, trust_code
        self._unchanged: set[str] = set()

    @functools.cached_property
    def task(self) -> ChosenTask:
        """The task that made the dataset. Raises UsageError for untrusted code, DatasetError, or TaskError."""
        return self._definition().choose(self._settings.options)

    def _definition(self) -> Definition:
        """Return the definition of the task: an installed one, or the file in the dataset after checking it."""
        facts = self.dataset.manifest.task
        if not facts.file:  # a file is never executed by a path in a manifest
            return registry.get_installed(self._settings.task)
        path = self.dataset.path_of(manifest.TASK_FILE)
        try:
            code = paths.read(path)
        except OSError as error:
            raise DatasetError(
                f"{path} cannot be read ({error.strerror or 'not found'}).", code="dataset.unreadable"
            ) from error
        facts.check_code(code, path=path)
        self._check_trust(code, path=path, use=f"make examples of rows, for the task {self._settings.task}")
        return registry.from_code(code, file=facts.file)

    @functools.cached_property
    def filters(self) -> Chain:
        """The filters of the dataset. Raises UsageError for untrusted code, SourceError if their files have changed."""
        for path in code_files(self._settings.filter):
            try:
                code = rules.read(path)
            except OSError as error:
                raise SourceError(
                    f"the filter {path} cannot be read ({error.strerror}).", code="filter.unreadable"
                ) from error
            self._check_trust(code, path=path, use="filter texts")
        chain = Chain(self._settings.filter)
        if chain.files() != self.dataset.manifest.filter_files:
            raise SourceError(
                "a file read by the filters is not the file that made the dataset. Restore that file.",
                code="filter.altered",
            )
        return chain

    def _check_trust(self, code: bytes, *, path: str, use: str) -> None:
        """Raise UsageError if this user has neither run `code` nor trusts it."""
        otherwise = "without it, what the dataset itself knows is told."
        trusted_code.check(
            code, path=path, use=use, otherwise=otherwise, trusted=self._trust_code, came_with="the dataset"
        )

    @functools.cached_property
    def files(self) -> list[RawFile]:
        """The source files of the dataset. Raises SourceError if one is missing, or if this user never read from their address."""
        described = self.dataset.manifest.source
        uri = self._source or pinned(described)
        uris = sources.uris_of(uri)
        # A stranger's manifest must not make this machine request arbitrary addresses.
        if not self._source and uri != "sample:" and any(raw.parse(address).scheme for address in uris):
            public_uri = addresses.public(uri)
            if any(map(addresses.is_redacted, sources.uris_of(described.uri))):
                raise SourceError(
                    f"the address {public_uri} had a secret, which is not recorded. Name the complete address: --source ADDRESS",
                    code="source.redacted-address",
                )
            if not all(map(addresses.is_known, sources.uris_of(described.uri))):
                raise SourceError(
                    f"the manifest names the source {public_uri}, which you have never read before. If you trust "
                    f"the author of the dataset, name the source: --source {shlex.quote(public_uri)}",
                    code="source.untrusted-address",
                )
            print(f"Reading the source that the manifest names: {public_uri}", file=sys.stderr, flush=True)
        ignore_card = bool(self._settings.split_files)
        resolved = sources.resolve_all(uris, include=self.task.files, progress=False, ignore_card=ignore_card)
        selected = row_limit.select_files(resolved, self.task, self._settings).source
        # Selected files replace resolved ones of the same name, because they have their splits.
        by_name = {file.name: file for file in (*resolved.files, *selected.files)}
        for file in described.files:
            if file.name not in by_name:
                raise SourceError(
                    f"{addresses.public(self._source or described.uri)} no longer contains {file.name}. Name its "
                    "location: --source SOURCE",
                    code="source.not-found",
                )
        return [by_name[file.name] for file in described.files]

    @functools.cached_property
    def examples_of(self) -> BlockExamples:
        """The step that makes the examples of blocks."""
        return BlockExamples(self._settings, self.task)

    def find(self, location: tuple[str, int] | None, ids: set[str]) -> Iterator[SourceRow]:
        """Yield the row at `location` (file and number), or all rows whose example has one of the `ids`."""
        for block in self._blocks(None if location is None else {location[0]}):
            if location is None:
                examples = self.examples_of(block)
                rows = examples.filter(pc.is_in(examples["id"], pa.array(sorted(ids))))["row"].to_pylist()
                numbers = [row + block.first_row for row in rows]
            elif block.first_row <= location[1] < block.first_row + block.rows:
                examples, numbers = self.examples_of(block), [location[1]]
            else:
                continue
            for number in numbers:
                is_row = pc.equal(examples["row"], number - block.first_row)
                yield SourceRow(block, number, examples.filter(is_row).combine_chunks())

    def texts(self, rows: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray, pa.Array, pa.Array]]:
        """Yield the texts of source rows before filters and cutting, as (file, row numbers, inputs, targets) for each block.

        `rows` has the sorted row numbers of each file, `int64[n]`. If the task rejects a row, its input is the JSON
        of its columns (null if it is unreadable), and its target is null. Raises T5prepError if the source is missing
        or has changed.
        """
        for block in self._blocks(rows):
            of_file = rows[block.file.name]
            begin = np.searchsorted(of_file, block.first_row)
            if not (of_file[begin : begin + 1] < block.first_row + block.rows).any():
                continue
            block_rows = of_file[begin:] - block.first_row
            examples = self.examples_of(block)
            examples = examples.filter(pa.array(np.isin(examples["row"].to_numpy(), block_rows))).sort_by("row")
            numbers, is_example = examples["row"].to_numpy() + block.first_row, examples["reason"].is_null()
            rejected_numbers = set(numbers[~is_example.to_numpy()].tolist())
            read = blocks.read(block, columns=self.examples_of.columns) if rejected_numbers else ()
            columns = {row.number: _columns(row) for row in read if row.number in rejected_numbers}
            instead = pa.array(map(columns.get, numbers.tolist()), pa.large_string())
            inputs = pc.if_else(is_example, example_table.inputs_of(examples).lines(), instead)
            yield block.file.name, numbers, inputs, pc.if_else(is_example, examples["target"], None)

    def first_examples(self, rows: int) -> tuple[str, list[Example]]:
        """Return the name of the first file, and the examples of its first `rows` rows after the filters."""
        if not (limited_file := next(self._limited_files(), None)):
            raise SourceError("the manifest names no file of the source.", code="source.files-missing")
        element, examples = limited_file.element, list[Example]()
        sizes = {file.name: file.bytes for file in self.dataset.manifest.source.files}
        for file in blocks.files(element):
            if file.bytes != sizes[file.name]:
                raise SourceError(
                    f"{file.name} is not the file that made the dataset, because its size differs. Name the "
                    "original source: --source SOURCE",
                    code="source.altered",
                )
        for block in row_limit.scan(LimitedFile(element, rows), self._settings, self.task.task.corpus):
            filtered = self.filters.of_table(self.examples_of(block))
            every = enumerate(example_table.examples_of(filtered.examples))
            examples += [
                example for row, example in every if row not in filtered.reasons and isinstance(example, Example)
            ]
        return blocks.files(element)[0].name, examples

    def _limited_files(self) -> Iterator[LimitedFile]:
        """Yield the files of the source, each with its row limit."""
        return row_limit.limited_files(self.files, self._settings, self.task)

    def _blocks(self, names: Container[str] | None) -> Iterator[Block]:
        """Yield the blocks of the files named in `names` (None: of all). Each file's checksum is verified first."""
        for file in self._limited_files():
            files = blocks.files(file.element)
            if names is None or files[0].name in names:
                self._check(files)
                yield from row_limit.scan(file, self._settings, self.task.task.corpus)

    def _check(self, files: Sequence[RawFile]) -> None:
        """Raise SourceError if the checksum of a file differs from the manifest's."""
        checksums = {file.name: file.sha256 for file in self.dataset.manifest.source.files}
        for file in files:
            if file.name not in self._unchanged and sources.checksum(file) != checksums[file.name]:
                raise SourceError(
                    f"{file.name} is not the file that made the dataset, because its checksum differs. Name the "
                    "original source: --source SOURCE",
                    code="source.altered",
                )
            self._unchanged.add(file.name)


def _columns(row: Row) -> str | None:
    """Return the columns of a row as JSON, or None if it could not be read."""
    if row.record is None:
        return None
    text = json.dumps(row.record, ensure_ascii=False, default=str)
    return text.encode(errors="backslashreplace").decode()


def pinned(source: manifest.Source) -> str:
    """Return the address of a source with the revision that was read, if its kind of address can name one.

    >>> pinned(manifest.Source("hf:a/b#c", "0123abc", [], "", "")), pinned(manifest.Source("kaggle:a/b", "version 3", [], "", ""))
    ('hf:a/b@0123abc#c', 'kaggle:a/b@3')
    """
    uris = sources.uris_of(source.uri)
    revisions = source.revision.split(" + ") if len(uris) > 1 and source.revision else [source.revision] * len(uris)
    return " + ".join(map(_pinned, uris, revisions))


def _pinned(uri: str, revision: str) -> str:
    """Return one address with its revision."""
    revision = revision.removeprefix("version ")
    if uri.partition(":")[0] not in ("hf", "kaggle") or "@" in uri or not revision:
        return uri
    name, hash, part = uri.partition("#")
    return f"{name}@{revision}{hash}{part}"
