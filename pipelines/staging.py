"""Lay beside the shards what workers need besides their elements: the list of files, the tokenizer, a user's own task.

A graph that carried them would grow with the corpus, and engines limit its size (10 MB on Dataflow). Nothing here
imports Beam.
"""

import base64
import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterator, Sequence

from t5prep import sources
from t5prep.dataset.settings import Settings
from t5prep.errors import TaskError, UsageError
from t5prep.io import paths
from t5prep.prepare import earlier_texts, evaluation_leaks, row_limit
from t5prep.prepare.earlier_texts import EarlierTexts
from t5prep.prepare.evaluation_leaks import Leaks
from t5prep.prepare.filters import user_files
from t5prep.prepare.filters.chain import Chain
from t5prep.prepare.row_limit import LimitedFile
from t5prep.sources import RawFile, Resolved
from t5prep.tasks import registry
from t5prep.tasks.chosen_task import ChosenTask
from t5prep.tasks.registry import Definition
from t5prep.tokens import loading
from t5prep.tokens.tokenizer import Tokenizer

FILES, MODEL, TASK, LEAKS, FILTERS = "files.jsonl", "tokenizer.model", "task.py", "leaks.npz", "filters.json"
EARLIER = "earlier.npz"


@dataclasses.dataclass(frozen=True)
class Job:
    """Hold one preparation as it travels to workers: its settings, and the folder where the rest of it lies.

    `tokenizer` is what the user calls it, `task_file` the user's own file that defines the task ("": it is installed), and
    `digest` that of all that lies in the folder: a worker loads once what is the same.
    """

    settings: Settings
    folder: str
    tokenizer: str
    task_file: str
    digest: str
    has_leaks: bool = False
    has_filter_files: bool = False
    has_earlier: bool = False


def stage(
    settings: Settings,
    *,
    task: Definition,
    source: Resolved,
    tokenizer: Tokenizer,
    folder: str,
    against: Leaks | None = None,
    earlier: EarlierTexts | None = None,
) -> Job:
    """Write what workers need into a folder that every one of them can read, and return the job. Raises OutputError."""
    lines = "".join(json.dumps(dataclasses.astuple(file)) + "\n" for file in source.files).encode()
    paths.write(paths.at(folder, FILES), lines)
    paths.write(paths.at(folder, MODEL), tokenizer.model)
    if task.file:
        paths.write(paths.at(folder, TASK), task.code)
    sets = against.dumps() if against else b""
    if sets:
        paths.write(paths.at(folder, LEAKS), sets)
    texts = earlier.dumps() if earlier else b""
    if texts:
        paths.write(paths.at(folder, EARLIER), texts)
    own = {path: base64.b64encode(user_files.read(path)).decode() for path in Chain(settings.filter).files()}
    filters = json.dumps(own).encode() if own else b""
    if own:
        paths.write(paths.at(folder, FILTERS), filters)
    digest = hashlib.sha256(lines + tokenizer.model + task.code + sets + texts + filters).hexdigest()
    has = {"has_leaks": bool(sets), "has_filter_files": bool(own), "has_earlier": bool(texts)}
    return Job(settings, folder, tokenizer.name, task.file, digest, **has)


def shared(source: Resolved, *, folder: str) -> Resolved:
    """Return the source with every file where a cloud's workers can read it; files of this machine are copied there.

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


def refuse_local(datasets: Sequence[str]) -> None:
    """Raise UsageError for a dataset on this machine, where a cloud's workers have to read it."""
    for data in datasets:
        if "://" not in data:
            raise UsageError(
                f"--dedup-against {data}: Dataflow's workers cannot read this machine's disk. Upload it first: "
                f"t5prep upload {data} gs://BUCKET/PREFIX"
            )


def files(job: Job) -> list[RawFile]:
    """Return the files of the source, in order of their names."""
    return [RawFile(*json.loads(line)) for line in paths.read(paths.at(job.folder, FILES)).splitlines()]


def names(job: Job) -> Sequence[str]:
    """Return the names of the source's files, in order."""
    return _names(job.folder, job.digest)


def limited_files(job: Job) -> Iterator[LimitedFile]:
    """Yield the files and pairs of files that are to be read, and how far."""
    yield from row_limit.limited_files(files(job), job.settings, task(job))


def bring_filter_files(job: Job) -> None:
    """Let filters read the user's files on this machine, wherever it is."""
    if job.has_filter_files:
        user_files.bring(_filter_files(job.folder, job.digest))


def evaluation_sets(job: Job) -> Leaks | None:
    """Return the evaluation sets that no row may share a text with, or None where there are none."""
    return _evaluation_sets(job.folder, job.digest) if job.has_leaks else None


def earlier(job: Job) -> EarlierTexts | None:
    """Return the texts of earlier datasets that no row may repeat, or None where there are none."""
    return _earlier(job.folder, job.digest) if job.has_earlier else None


def tokenizer(job: Job) -> Tokenizer:
    """Return the tokenizer, under the name the user gave it."""
    return _tokenizer(job.folder, job.tokenizer, job.digest)


def definition(job: Job) -> Definition:
    """Return the definition of the task: of the user's own file, or of what is installed here.

    Raises TaskError where this machine has no such task.
    """
    return _definition(job.folder, job.settings.task, job.task_file, job.digest)


def task(job: Job) -> ChosenTask:
    """Return the task with its options."""
    return definition(job).choose(job.settings.options)


@functools.lru_cache(maxsize=1)  # a process loads it once
def _tokenizer(folder: str, name: str, digest: str) -> Tokenizer:
    return loading.of_content(paths.read(paths.at(folder, MODEL)), name=name)


@functools.lru_cache(maxsize=1)
def _names(folder: str, digest: str) -> Sequence[str]:
    return [json.loads(line)[0] for line in paths.read(paths.at(folder, FILES)).splitlines()]


@functools.lru_cache(maxsize=1)
def _definition(folder: str, name: str, file: str, digest: str) -> Definition:
    if file:
        return registry.from_code(paths.read(paths.at(folder, TASK)), file=file)
    try:
        return registry.get(name)
    except UsageError as error:
        raise TaskError(
            f"a worker has no task {name}: the package that offers it is not installed there. Hand it over behind the "
            "other options: -- --extra_package=PACKAGE.whl"
        ) from error


@functools.lru_cache(maxsize=1)
def _filter_files(folder: str, digest: str) -> dict[str, bytes]:
    own = json.loads(paths.read(paths.at(folder, FILTERS)))
    return {path: base64.b64decode(content) for path, content in own.items()}


@functools.lru_cache(maxsize=1)
def _evaluation_sets(folder: str, digest: str) -> Leaks:
    return evaluation_leaks.loads(paths.read(paths.at(folder, LEAKS)))


@functools.lru_cache(maxsize=1)
def _earlier(folder: str, digest: str) -> EarlierTexts:
    return earlier_texts.loads(paths.read(paths.at(folder, EARLIER)))
