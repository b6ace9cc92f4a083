"""Find the characters of a source that a tokenizer loses, where the source is still on this machine, unchanged."""

import dataclasses
import itertools
from collections.abc import Iterator

from t5prep import sources
from t5prep.dataset.manifest import Manifest
from t5prep.errors import Reject, T5prepError
from t5prep.reading import blocks, parallel_files
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


def look(made: Manifest, words: Tokenizer) -> Characters | None:
    """Return the characters of inputs and targets that the tokenizer changes.

    Return None where the source is not on this machine, or has changed since.
    """
    if made.source.uri != "sample:" and ":" in made.source.uri:
        return None
    try:
        name, examples = _examples(made)
        texts = [list(_texts(example)) for example in itertools.islice(examples, _ROWS)]
    except (T5prepError, OSError, KeyError):
        return None
    lost = audit.examine(itertools.chain.from_iterable(texts), words).lost
    if made.settings.keep_newlines:
        lost = [one for one in lost if one.character != "\n"]
    return Characters(name, len(texts), lost[:_SHOWN], len(lost[_SHOWN:]))


def _examples(made: Manifest) -> tuple[str, Iterator[Example]]:
    """Return the name of the first file, and the examples of its rows. Raises T5prepError or OSError."""
    if made.task.file:
        raise T5prepError(f"{made.task.file} defines the task, and it is not here.")
    this = registry.get(made.settings.task).choose(made.settings.options)
    source = sources.resolve(made.source.uri, include=this.files)
    element = parallel_files.match(source.files, this.task.corpus.pairs)[0]
    known = {(file.name, file.bytes) for file in made.source.files}
    read: tuple[RawFile, ...] = parallel_files.files(element)
    if any((file.name, file.bytes) not in known for file in read):
        raise T5prepError(f"{read[0].name} is another file than the one that was prepared.")
    columns = this.columns.names
    found = parallel_files.scan(
        element, kind=made.settings.format, encoding=made.settings.encoding, otherwise=this.task.corpus.format
    )

    def examples() -> Iterator[Example]:
        for block in found:
            for row in blocks.read(block, columns=columns):
                if row.record is not None:
                    try:
                        yield this.to_example(row.record)
                    except Reject:
                        continue

    return read[0].name, examples()


def _texts(example: Example) -> Iterator[str]:
    parts = (example.inputs,) if isinstance(example.inputs, str) else example.inputs
    for part in (*parts, example.targets):
        if isinstance(part, Protected):
            yield part.text
        elif isinstance(part, str):
            yield part
