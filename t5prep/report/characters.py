"""Find the characters of a source that a tokenizer loses, where the source is still on this machine, unchanged."""

import dataclasses
import itertools
from collections.abc import Iterator

from t5prep import sources
from t5prep.dataset.manifest import Manifest
from t5prep.errors import Reject, T5prepError
from t5prep.reading import blocks
from t5prep.sources import RawFile
from t5prep.tasks import registry
from t5prep.tasks.example import Example, Protected
from t5prep.tokens import audit
from t5prep.tokens.tokenizer import Tokenizer

_ROWS = 2000
_SHOWN = 10


@dataclasses.dataclass(frozen=True)
class Characters:
    """Hold the characters that decoding does not give back, for the first `rows` good rows of a file.

    `lost` has the most frequent first; `more` counts those that are not shown.
    """

    file: str
    rows: int
    lost: list[audit.Lost]
    more: int = 0


def look(dataset_manifest: Manifest, tokenizer: Tokenizer) -> Characters | None:
    """Return the characters of inputs and targets that the tokenizer changes.

    Return None where the source is not on this machine, or has changed since.
    """
    if dataset_manifest.source.uri != "sample:" and ":" in dataset_manifest.source.uri:
        return None
    try:
        name, examples = _examples(dataset_manifest)
        texts = [list(_texts(example)) for example in itertools.islice(examples, _ROWS)]
    except (T5prepError, OSError, KeyError):
        return None
    lost = audit.examine(itertools.chain.from_iterable(texts), tokenizer).lost
    if dataset_manifest.settings.keep_newlines:
        lost = [entry for entry in lost if entry.character != "\n"]
    return Characters(name, len(texts), lost[:_SHOWN], len(lost[_SHOWN:]))


def _examples(dataset_manifest: Manifest) -> tuple[str, Iterator[Example]]:
    """Return the name of the first file, and the examples of its rows. Raises T5prepError or OSError."""
    if dataset_manifest.task.file:
        raise T5prepError(f"{dataset_manifest.task.file} defines the task, and it is not here.")
    if dataset_manifest.settings.task not in registry.names():  # a manifest's name of a file is never executed
        raise T5prepError(f"{dataset_manifest.settings.task} is not installed.")
    chosen_task = registry.get(dataset_manifest.settings.task).choose(dataset_manifest.settings.options)
    source = sources.resolve(dataset_manifest.source.uri, include=chosen_task.files)
    element = blocks.match(source.files, chosen_task.pairs)[0]
    known = {(file.name, file.bytes) for file in dataset_manifest.source.files}
    raw_files: tuple[RawFile, ...] = blocks.files(element)
    if any((file.name, file.bytes) not in known for file in raw_files):
        raise T5prepError(f"{raw_files[0].name} is another file than the one that was prepared.")
    columns = chosen_task.columns.names
    file_blocks = blocks.scan_element(
        element,
        kind=dataset_manifest.settings.format,
        encoding=dataset_manifest.settings.encoding,
        otherwise=chosen_task.task.corpus.format,
        records=dataset_manifest.settings.records,
    )

    def examples() -> Iterator[Example]:
        for block in file_blocks:
            for row in blocks.read(block, columns=columns):
                if row.record is not None:
                    try:
                        yield chosen_task.to_example(row.record)
                    except Reject:
                        continue

    return raw_files[0].name, examples()


def _texts(example: Example) -> Iterator[str]:
    parts = (example.inputs,) if isinstance(example.inputs, str) else example.inputs
    for part in (*parts, example.targets):
        if isinstance(part, Protected):
            yield part.text
        elif isinstance(part, str):
            yield part
