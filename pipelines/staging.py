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
from t5prep.tasks.registry import Definition
from t5prep.tasks.task import ChosenTask
from t5prep.tokens import loading
from t5prep.tokens.tokenizer import Tokenizer

FILES, MODEL, TASK, LEAKS, FILTERS = "files.jsonl", "tokenizer.model", "task.py", "leaks.npz", "filters.json"
EARLIER = "earlier.npz"


@dataclasses.dataclass(frozen=True)
class Job:
    """One preparation as it travels to workers: its settings, and the folder where the rest of it lies.

    `tokenizer` is what the user calls it, `task_file` the user's own file that defines the task ("": it is installed),
    `files` are the names of what lies in the folder, and `digest` is that of all of it.
    """

    settings: Settings
    folder: str
    tokenizer: str
    task_file: str
    digest: str
    files: tuple[str, ...] = ()


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
    filters = {path: base64.b64encode(user_files.read(path)).decode() for path in Chain(settings.filter).files()}
    contents = {
        FILES: "".join(json.dumps(dataclasses.astuple(file)) + "\n" for file in source.files).encode(),
        MODEL: tokenizer.model,
        TASK: task.code if task.file else b"",
        LEAKS: against.dumps() if against else b"",
        EARLIER: earlier.dumps() if earlier else b"",
        FILTERS: json.dumps(filters).encode() if filters else b"",
    }
    laid = {name: content for name, content in contents.items() if content}
    digest = hashlib.sha256(task.code)
    for name, content in laid.items():
        paths.write(paths.at(folder, name), content)
        digest.update(content)
    return Job(settings, folder, tokenizer.name, task.file, digest.hexdigest(), tuple(laid))


class Staged:
    """What lies in a job's folder, each part loaded when it is first asked for."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def _read(self, name: str) -> bytes:
        """Return a file of the folder; nothing where the job has no such file."""
        return paths.read(paths.at(self.job.folder, name)) if name in self.job.files else b""

    def source_files(self) -> Iterator[RawFile]:
        """Yield the files of the source, in order of their names."""
        for line in self._read(FILES).splitlines():
            yield RawFile(*json.loads(line))

    @functools.cached_property
    def names(self) -> Sequence[str]:
        """The names of the source's files, in order."""
        return [file.name for file in self.source_files()]

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer, under the name the user gave it."""
        return loading.of_content(self._read(MODEL), name=self.job.tokenizer)

    @functools.cached_property
    def definition(self) -> Definition:
        """The definition of the task: of the user's own file, or of what is installed here.

        Raises TaskError where this machine has no such task.
        """
        if self.job.task_file:
            return registry.from_code(self._read(TASK), file=self.job.task_file)
        try:
            return registry.get(self.job.settings.task)
        except UsageError as error:
            raise TaskError(
                f"a worker has no task {self.job.settings.task}: the package that offers it is not installed there. Hand it over "
                "behind the other options: -- --extra_package=PACKAGE.whl"
            ) from error

    @functools.cached_property
    def task(self) -> ChosenTask:
        """The task with its options."""
        return self.definition.choose(self.job.settings.options)

    @functools.cached_property
    def evaluation_sets(self) -> Leaks | None:
        """The evaluation sets that no row may share a text with, or None where there are none."""
        content = self._read(LEAKS)
        return evaluation_leaks.loads(content) if content else None

    @functools.cached_property
    def earlier(self) -> EarlierTexts | None:
        """The texts of earlier datasets that no row may repeat, or None where there are none."""
        content = self._read(EARLIER)
        return earlier_texts.loads(content) if content else None

    def bring_filter_files(self) -> None:
        """Let filters read the user's files on this machine, wherever it is."""
        if content := self._read(FILTERS):
            own = json.loads(content)
            user_files.bring({path: base64.b64decode(encoded) for path, encoded in own.items()})


# What this process has loaded, of the last job: a worker serves one preparation, a test many.
_LAST: list[Staged] = []


def of(job: Job) -> Staged:
    """Return what lies in a job's folder; a process loads it once."""
    if not (_LAST and _LAST[0].job == job):
        _LAST[:] = [Staged(job)]
    return _LAST[0]


def limited_files(job: Job) -> Iterator[LimitedFile]:
    """Yield the files and pairs of files that are to be read, and how far."""
    staged = of(job)
    yield from row_limit.limited_files(list(staged.source_files()), job.settings, staged.task)


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
