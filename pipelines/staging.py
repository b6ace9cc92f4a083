"""What workers need besides their elements, laid beside the shards: the list of files, and the tokenizer.

A graph that carried them would grow with the corpus, and engines limit its size (10 MB on Dataflow). Nothing here
imports Beam.
"""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterator

from t5prep import sources
from t5prep.dataset.settings import Settings
from t5prep.io import paths
from t5prep.prepare import row_limit
from t5prep.prepare.row_limit import Wanted
from t5prep.sources import RawFile, Resolved
from t5prep.tokens.tokenizer import Tokenizer

FILES, MODEL = "files.jsonl", "tokenizer.model"


@dataclasses.dataclass(frozen=True)
class Staged:
    """Where it lies, what the user calls the tokenizer, and a digest of it all: a worker loads once what is the same."""

    folder: str
    tokenizer: str
    digest: str


def stage(*, source: Resolved, tokenizer: Tokenizer, folder: str) -> Staged:
    """Writes the files of a source and the tokenizer's model into a folder that every worker can read."""
    lines = "".join(json.dumps(dataclasses.astuple(file)) + "\n" for file in source.files).encode()
    paths.write(paths.at(folder, FILES), lines)
    paths.write(paths.at(folder, MODEL), tokenizer.model)
    return Staged(folder, tokenizer.name, hashlib.sha256(lines + tokenizer.model).hexdigest())


def shared(source: Resolved, *, folder: str) -> Resolved:
    """The source with every file where workers of a cloud can read it: what is on this machine is copied to the folder.

    Raises SourceError or OutputError.
    """
    there: dict[str, str] = {}
    moved = []
    for file in source.files:
        if "://" in file.path:
            moved.append(file)
            continue
        if file.path not in there:
            there[file.path] = paths.copy(file.path, paths.at(folder, f"source-{len(there):06d}"))
        sha256 = file.sha256 or sources.sha256(file)
        sources.check_unchanged(file)
        moved.append(dataclasses.replace(file, path=there[file.path], sha256=sha256, modified=0))
    return dataclasses.replace(source, files=tuple(moved))


def files(staged: Staged) -> list[RawFile]:
    """The files, in order of their names."""
    return [RawFile(*json.loads(line)) for line in paths.read(paths.at(staged.folder, FILES)).splitlines()]


def wanted(staged: Staged, *, settings: Settings) -> Iterator[Wanted]:
    """The files and pairs of files that are to be read, and how far."""
    yield from row_limit.wanted(files(staged), settings)


@functools.lru_cache(maxsize=1)
def tokenizer(staged: Staged) -> Tokenizer:
    """The tokenizer, under the name the user gave it; a process loads it once."""
    return Tokenizer(paths.read(paths.at(staged.folder, MODEL)), name=staged.tokenizer)
