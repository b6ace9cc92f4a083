"""Find the splits that file names show, by the patterns of Hugging Face's `datasets`.

They are tested in the order of `datasets` 5; the first pattern that matches a file decides for all files:

1. Shards in the folder `data`: `data/NAME-00000-of-00002.parquet` belongs to the split NAME, whatever it is. 2.
Folders: a part of the path is a keyword, or begins or ends with one: `train/0.csv`, `my_test/0.csv`. 3. Files: the
same for their names: `train.csv`, `corpus-dev-1.csv`.

A separator (`-._`, a space or a digit) must be on both sides of a keyword. Unlike `datasets`, upper case counts as
lower case. Also unlike `datasets`, shards outside of `data` keep their names if none is a keyword and some would be
merged (`train_sft-…`, `train_gen-…`).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from t5prep.errors import SourceError

KEYWORDS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "dev", "val"), "validation"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}
ADVICE = "With prepare, name the splits: --split-files train=GLOB,test=GLOB"
_WORD = f"(?P<word>{'|'.join(KEYWORDS)})"
_IN_FILE = re.compile(rf"(?<![^-._ 0-9/]){_WORD}[-._ 0-9][^/]*\Z", re.IGNORECASE)
_IN_FOLDER = re.compile(rf"(?<![^-._ 0-9/]){_WORD}(?=[-._ 0-9/])[^/]*/", re.IGNORECASE)
_SHARD = re.compile(r"(?P<split>[^/]*)-\d{5}-of-\d{5}[^/]*\.[^/]*")
_NAME = re.compile(r"\w+(\.\w+)*")
# Parts of names that hint at a split, even if no pattern matches.
_HINT = re.compile(r"train|valid|dev|test|eval|hold.?out|held.?out|unsupervised|split", re.IGNORECASE)


def is_split_name(name: str) -> bool:
    """Check whether a text can name a split, which becomes a part of file names.

    >>> is_split_name("validation_2"), is_split_name("../train"), is_split_name("")
    (True, False, False)
    """
    return name.replace("_", "").replace("-", "").isalnum()


class Splits(NamedTuple):
    """The split of each file that has one, and the names of all other files."""

    split_by_name: dict[str, str]
    unassigned_names: list[str]


def find(names: Mapping[str, str]) -> Splits:
    """Return the splits of files. `names` maps each file's name to the path that shows its split.

    Raises SourceError if a path shows two splits, and if some folders and some file names show splits.

    >>> find({name: name for name in ("train.csv", "dev.csv", "notes.csv")})
    Splits(split_by_name={'train.csv': 'train', 'dev.csv': 'validation'}, unassigned_names=['notes.csv'])
    """
    split_by_name = _shards(names, folder="data/") or _by_keyword(names)
    return Splits(split_by_name, [name for name in names if name not in split_by_name])


def hints(names: Sequence[str]) -> list[str]:
    """Return the names that hint at a split although no pattern matches.

    >>> hints(["holdout.csv", "traindata.csv", "part-1.csv"])
    ['holdout.csv', 'traindata.csv']
    """
    return [name for name in names if _HINT.search(name)]


def split_of_word(word: str) -> str:
    """Return the split that a keyword means. Any other word is a split's name itself.

    >>> split_of_word("Dev"), split_of_word("holdout")
    ('validation', 'holdout')
    """
    return KEYWORDS.get(word.strip().lower(), word.strip())


def _by_keyword(names: Mapping[str, str]) -> dict[str, str]:
    """Return the splits that keywords in folders show, or in file names if no folder shows one. Raises SourceError."""
    folders = {name: set(_splits(_IN_FOLDER, path)) for name, path in names.items()}
    files = {name: set(_splits(_IN_FILE, path)) for name, path in names.items()}
    in_folders, in_files = ({name for name, splits in of.items() if splits} for of in (folders, files))
    if in_folders and (missed := sorted(in_files - in_folders)):
        raise SourceError(
            f"{min(in_folders)} has its split in the folder name, but {missed[0]} has it in the file name. {ADVICE}",
            code="split.ambiguous",
        )
    chosen = folders if in_folders else files
    for name, splits in chosen.items():
        if len(splits) > 1:
            raise SourceError(
                f"The name {name} matches several splits: {', '.join(sorted(splits))}. {ADVICE}", code="split.ambiguous"
            )
    split_by_name = {name: min(splits) for name, splits in chosen.items() if splits}
    # Keywords would merge shards such as train_sft-… and train_gen-… into train, so these keep their own names.
    shards = {} if in_folders else _shards(names)
    of_shards = {name: shards[name] for name in split_by_name if name in shards}
    merged = len(set(of_shards.values())) > len(set(split_by_name.values()))
    return (
        of_shards
        if len(of_shards) == len(split_by_name) and merged and not KEYWORDS.keys() & of_shards.values()
        else split_by_name
    )


def _splits(pattern: re.Pattern[str], path: str) -> Iterator[str]:
    """Yield the split of each keyword that a pattern finds in a path, also in overlapping matches."""
    begin = 0
    while match := pattern.search(path, begin):
        yield KEYWORDS[match["word"].lower()]
        begin = match.end("word")


def _shards(names: Mapping[str, str], *, folder: str = "") -> dict[str, str]:
    """Return the splits of files named like shards, in `folder`, or anywhere if it is "".

    Raises SourceError for shards whose name cannot be a split's.
    """
    split_by_name = {}
    for name, path in names.items():
        inside = path.removeprefix(folder) if folder else path.rpartition("/")[2]
        if path.startswith(folder) and (match := _SHARD.fullmatch(inside)):
            split_by_name[name] = match["split"]
    for name, split in split_by_name.items():
        if not _NAME.fullmatch(split):
            raise SourceError(
                f'The name {name} contains the split "{split}", which is not a valid name of a split. {ADVICE}',
                code="split.invalid-name",
            )
    return split_by_name
