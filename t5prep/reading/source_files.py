"""Choose the files of a source to read, and the split of each. Unclear cases are reported, never guessed.

The order of the rules is that of `datasets` 5: the user's options (`--skip-files`, `--split-files`), the card, the
names of files. Then, for each split, files of its most frequent format are read.
"""

import collections
import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from t5prep.errors import SourceError, UsageError
from t5prep.io.progress import list_names
from t5prep.reading import formats
from t5prep.sources import RawFile, Resolved, split_names
from t5prep.sources.raw import glob_pattern
from t5prep.sources.split_names import is_split_name

# If two formats are equally frequent, `datasets` takes the first of these, otherwise the alphabetically last.
_PREFERRED = (".parquet", ".jsonl", ".json", ".csv")
_EXAMPLE = "Write, for example: --split-files train=data/part-*.csv,test=data/held_out.csv"


def splits_of(files: Iterable[RawFile]) -> dict[str, str]:
    """Return the split of each file that has one."""
    return {file.name: file.split for file in files if file.split}


class Selection(NamedTuple):
    """A source with the files to read, each with its split, and messages about all other files."""

    source: Resolved
    messages: list[str]

    @property
    def splits(self) -> set[str]:
        """The names of the splits."""
        return {file.split for file in self.source.files} - {""}


def parse_split_files(texts: Sequence[str]) -> dict[str, list[str]]:
    """Return the file patterns of each split. Raises UsageError.

    >>> parse_split_files(["train=a-*.csv,train=b.csv,test=c.csv"])
    {'train': ['a-*.csv', 'b.csv'], 'test': ['c.csv']}
    """
    patterns: dict[str, list[str]] = {}
    for text in texts:
        for item in re.split(r",(?=[\w-]+=)", text):
            split, _, pattern = item.strip().partition("=")
            if not is_split_name(split) or not pattern.strip():
                raise UsageError(
                    f'--split-files "{text}" contains "{item}", which is not SPLIT=GLOB. {_EXAMPLE}',
                    code="option.malformed",
                )
            patterns.setdefault(split, []).append(pattern.strip())
    return patterns


def select(
    source: Resolved,
    *,
    kind: str = "",
    split_files: Sequence[str] = (),
    skip_files: Sequence[str] = (),
    draw_splits: bool = False,
    any_format: bool = False,
    keep_others: bool = False,
) -> Selection:
    """Return the files of a source to read, and their splits. No file is opened.

    kind: the format of all files, "" to detect it by name split_files, skip_files: values of the options
    --split-files and --skip-files draw_splits: rows of all files are drawn into splits, so names of files have no
    influence any_format: files of all formats are read keep_others: files whose names show no split are read, too,
    although others show one

    Raises UsageError for a pattern that matches no file, SourceError for files whose splits are unclear.
    """
    messages: list[str] = []
    files = _without_skipped(source, skip_files)
    if split_files:
        files = _as_given(files, parse_split_files(split_files), messages, source=source)
    else:
        files = _without_documents(files, messages, kind=kind)
        if draw_splits:
            files = [dataclasses.replace(file, split="") for file in files]
        else:
            files = _by_name(files, messages, source=source, keep_others=keep_others)
    if not (kind or any_format):
        files = _of_one_format(files, messages, origins=source.origins)
    selection = Selection(dataclasses.replace(source, files=tuple(files)), messages)
    for split in sorted(selection.splits):
        if not is_split_name(split):
            raise SourceError(
                f'"{split}" is not a valid name of a split. {split_names.ADVICE}', code="split.invalid-name"
            )
    return selection


TRAINING, EVALUATION, ALL = "train", "evaluation", "all"


def select_split(
    source: Resolved, split: str = "", *, kind: str = "", otherwise: str = TRAINING, any_format: bool = False
) -> Selection:
    """Return the files that a command reads that makes no dataset: those of one split, chosen as `select` does.

    split: a split, or "all" for all files kind: the format of all files, "" to detect it by name otherwise: the files
    to read if no split is named and there are several: TRAINING, EVALUATION (all other splits) or ALL

    Raises UsageError for a missing split, SourceError for files whose splits are unclear.
    """
    reads_all = (split or otherwise) == ALL
    try:
        selected = select(source, kind=kind, any_format=any_format, keep_others=reads_all)
    except SourceError as error:
        if otherwise == EVALUATION:
            raise
        if not reads_all:
            raise SourceError(f"{error} To read every file: --split all", code=error.code) from None
        selected = select(source, kind=kind, any_format=any_format, draw_splits=True)
    files, messages = selected.source.files, selected.messages
    available_splits = sorted(selected.splits)
    if split not in ("", ALL, *available_splits):
        has = f"the splits {', '.join(available_splits)}" if available_splits else "no splits"
        raise UsageError(
            f"--split {split} does not exist: {source.uri} has {has}. Remove --split, or use --split all.",
            code="split.unknown",
        )
    if split == ALL or (len(available_splits) < 2 and not split):
        return selected
    if split:
        read = {split}
    elif otherwise == ALL or "train" not in available_splits:
        instead = "" if otherwise == EVALUATION else f". To read one of them: --split {available_splits[0]}"
        messages.append(f"Reading the splits {', '.join(available_splits)}{instead}")
        return selected
    else:
        read = {name for name in available_splits if (name == "train") == (otherwise == TRAINING)}
        unread_splits = ", ".join(name for name in available_splits if name not in read)
        instead = "" if otherwise == EVALUATION else ". To read every file: --split all"
        messages.append(f"Reading only {', '.join(sorted(read))}, not {unread_splits}{instead}")
    selected_files = tuple(file for file in files if file.split in read)
    return Selection(dataclasses.replace(selected.source, files=selected_files), messages)


def _without_skipped(source: Resolved, patterns: Sequence[str]) -> list[RawFile]:
    """Return the files that match none of the patterns. Raises UsageError for a pattern without a match."""
    remaining_files = list(source.files)
    for pattern in patterns:
        matches = _matcher(pattern)
        if not any(matches(file.name) for file in source.files):
            names = [file.name for file in source.files]
            raise UsageError(
                f"--skip-files {pattern} matches no file of {source.uri}. The source has {list_names(names)}.",
                code="source.unmatched-pattern",
            )
        remaining_files = [file for file in remaining_files if not matches(file.name)]
    if not remaining_files:
        raise UsageError(
            f"--skip-files {' --skip-files '.join(patterns)} skips every file of {source.uri}. Remove a pattern.",
            code="source.files-missing",
        )
    return remaining_files


def _without_documents(files: Sequence[RawFile], messages: list[str], *, kind: str) -> list[RawFile]:
    """Return the files without those about the data (README, LICENSE). `kind` is the format of all files, or ""."""
    names, documents = formats.without_documents([file.name for file in files], kind=kind)
    if documents:
        messages.append(f"Skipping files about the data: {list_names(documents)}")
    selected_names = set(names)
    return [file for file in files if file.name in selected_names]


def _as_given(
    files: Sequence[RawFile], patterns: Mapping[str, Sequence[str]], messages: list[str], *, source: Resolved
) -> list[RawFile]:
    """Return the files that the user assigned to splits. Raises UsageError."""
    splits: dict[str, str] = {}
    for split, globs in patterns.items():
        for pattern in globs:
            matches = _matcher(pattern)
            matched_names = [file.name for file in files if matches(file.name)]
            if not matched_names:
                names = [file.name for file in files]
                raise UsageError(
                    f"--split-files {split}={pattern} matches no file of {source.uri}. The source has "
                    f"{list_names(names)}.",
                    code="source.unmatched-pattern",
                )
            for name in matched_names:
                if splits.setdefault(name, split) != split:
                    raise UsageError(
                        f"--split-files assigns {name} to two splits, {splits[name]} and {split}. Assign the file to "
                        "one split.",
                        code="split.overlap",
                    )
    if skipped_names := [file.name for file in files if file.name not in splits]:
        messages.append(f"Skipping files without a split in --split-files: {list_names(skipped_names)}")
    return [dataclasses.replace(file, split=splits[file.name]) for file in files if file.name in splits]


def _by_name(
    files: Sequence[RawFile], messages: list[str], *, source: Resolved, keep_others: bool = False
) -> list[RawFile]:
    """Return the files with the splits of the card or of their names; without splits if none is shown."""
    if any(file.split for file in files):
        return list(files)
    # A single file that the user named is the whole source, even if its name shows a split.
    if source.is_named and len(files) == 1:
        return list(files)
    splits = split_names.find(_paths(files, base=source.base))
    if source.is_named and len(set(splits.split_by_name.values())) < 2:
        return list(files)
    if not splits.split_by_name:
        if len(files) > 1 and (hints := split_names.hints([file.name for file in files])):
            messages.append(
                f"The file names show no split ({list_names(hints)}), so the rows of all files are drawn into splits. "
                f"{split_names.ADVICE}"
            )
        return list(files)
    if keep_others:
        return [dataclasses.replace(file, split=splits.split_by_name.get(file.name, "")) for file in files]
    if splits.unassigned_names:
        messages.append(
            f"Skipping files whose names show no split, although other names do: {list_names(splits.unassigned_names)}. "
            f"{split_names.ADVICE}"
        )
    return [
        dataclasses.replace(file, split=splits.split_by_name[file.name])
        for file in files
        if file.name in splits.split_by_name
    ]


def _paths(files: Sequence[RawFile], *, base: str) -> dict[str, str]:
    """Return for each file the path that shows its split: its archive's path, or its path inside if the former shows none."""
    prefix = f"{base}/" if base else ""
    outside = {file.archive.removeprefix(prefix): "" for file in files if file.archive}
    telling = split_names.find({name: name for name in outside}).split_by_name
    paths = {}
    for file in files:
        archive, name = file.archive.removeprefix(prefix), file.name.removeprefix(prefix)
        if archive in telling:
            paths[file.name] = archive
        elif archive:
            folder = archive.rpartition("/")[0]
            paths[file.name] = "/".join(filter(None, (folder, name.removeprefix(f"{archive}/"))))
        else:
            paths[file.name] = name
    return paths


def _of_one_format(files: Sequence[RawFile], messages: list[str], *, origins: Mapping[str, int]) -> list[RawFile]:
    """Return the files of each split in its most frequent format. Files whose names show no format stay.

    origins: if several sources are joined, the number of each file's source, because each source has its own format
    """
    selected_files: list[RawFile] = []
    groups: dict[tuple[int, str], list[RawFile]] = {}
    for file in files:
        groups.setdefault((origins.get(file.name, 0), file.split), []).append(file)
    for (_, split), group in groups.items():
        families = [formats.family(file.name) for file in group]
        main_family = _most_common([file.name for file in group]) if len(set(families) - {""}) > 1 else ""
        skipped_names = [
            file.name
            for file, family in zip(group, families, strict=True)
            if main_family and family not in ("", main_family)
        ]
        if skipped_names:
            messages.append(
                f"Skipping files, because {f'the split {split}' if split else 'a split'} is read in one format, and "
                f"{_reason(families, main_family)}: {list_names(skipped_names)}. To read these with prepare: --skip-files "
                f"'{_example([file.name for file in group], skipped_names)}'"
            )
        selected_files += [file for file in group if file.name not in set(skipped_names)]
    names = {file.name for file in selected_files}
    return [file for file in files if file.name in names]


def _most_common(names: Sequence[str]) -> str:
    """Return the family of the most frequent suffix. All suffixes of a name count, as in `datasets`."""
    suffix_counts = collections.Counter(
        "." + suffix.lower() for name in names for suffix in name.rpartition("/")[2].split(".")[1:]
    )
    known_suffixes = [suffix for suffix in suffix_counts if suffix in formats.SUFFIXES]
    best = max(
        known_suffixes,
        key=lambda suffix: (
            suffix_counts[suffix],
            *(suffix == preferred_suffix for preferred_suffix in _PREFERRED),
            suffix,
        ),
    )
    return formats.family(f"x{best}")


def _reason(families: Sequence[str], main_family: str) -> str:
    """Return why a format is read instead of others, as the end of a sentence.

    >>> _reason(["csv", "jsonl", "jsonl"], "jsonl"), _reason(["csv", "jsonl"], "jsonl")
    ('most of its files are jsonl', 'jsonl is preferred to csv if equally many files have it')
    """
    family_counts = collections.Counter(filter(None, families))
    tied_families = [
        family
        for family, count in family_counts.items()
        if family != main_family and count >= family_counts[main_family]
    ]
    if tied_families:
        return f"{main_family} is preferred to {' and '.join(tied_families)} if equally many files have it"
    return f"most of its files are {main_family}"


def _example(names: Sequence[str], skipped_names: Sequence[str]) -> str:
    """Return a glob that skips the files that are read now, so that the others are read."""
    name = next(name for name in names if name not in set(skipped_names) and formats.family(name))
    return f"*.{name.rpartition('/')[2].partition('.')[2]}"


def _matcher(pattern: str) -> Callable[[str], re.Match[str] | None]:
    """Return a function that matches a name, either all of it or its last parts, with a glob."""
    try:
        return glob_pattern(pattern if pattern.startswith("**/") else f"**/{pattern.removeprefix('./')}").fullmatch
    except SourceError as error:
        raise UsageError(str(error), code="source.invalid-glob") from None
