"""Define all choices of one preparation: each field is an option of `t5prep prepare`, and the manifest holds them."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from t5prep.errors import UsageError
from t5prep.io.addresses import Address
from t5prep.options.fields import as_cli_option, check, flag, option
from t5prep.options.files import FileOptions, parse_columns, parse_delimiter, parse_escape
from t5prep.sources.split_names import is_split_name

# The kinds of targets in `tasks/targets.py`, which loads Arrow: `--help` needs none of it.
TARGETS = ("text", "class", "tags", "labels", "number", "tokens")
POLICIES = ("head_tail", "head", "tail")
MARKERS = ("extra_id_1", "none")
_EXAMPLE = "Write it like this: --splits train=0.9,validation=0.1 or --splits validation=15000"
LAYOUTS = ("padded", "ragged", "packed")
LONG = ("auto", "cut", "split", "reject")
DEDUPS = ("none", "exact", "near")
_SPLITS = (
    "split sizes, as shares drawn by the hash of the id, or as numbers of rows (validation=15000) [default: "
    "the splits of the files, or train=0.9,validation=0.1]"
)


def parse_splits(text: str) -> dict[str, float]:
    """Return `train=0.9,validation=0.1` as shares that add up to 1; whole numbers above 1 are numbers of rows.

    Shares are of the rows that are left when those numbers are taken; without shares, these rows are for training.
    Raises UsageError.

    >>> parse_splits("train=0.9,validation=0.1")
    {'train': 0.9, 'validation': 0.1}
    >>> parse_splits("validation=15000")
    {'validation': 15000.0, 'train': 1.0}
    """
    splits: dict[str, float] = {}
    for item in text.split(","):
        name, _, share = item.strip().partition("=")
        try:
            splits[name] = float(share)
        except ValueError:
            raise UsageError(f'--splits "{text}": "{item}" is not name=share or name=rows. {_EXAMPLE}') from None
        if not is_split_name(name) or not _is_size(splits[name]):
            raise UsageError(
                f'--splits "{text}": "{item}" is not a name and a share between 0 and 1, or a number of rows. {_EXAMPLE}'
            )
    shares = [size for size in splits.values() if size <= 1]
    twice = len(splits) != text.count(",") + 1
    if row_counts(splits) and not shares and "train" not in splits:
        splits["train"], shares = 1.0, [1.0]
    if twice or abs(sum(shares) - 1) > 1e-6:
        raise UsageError(f'--splits "{text}": each name once, and the shares must add up to 1. {_EXAMPLE}')
    return splits


def parse_held_out(text: str) -> float:
    """Return a share between 0 and 1, or a whole number of rows. Raises UsageError.

    >>> parse_held_out("0.05"), parse_held_out("500")
    (0.05, 500.0)
    """
    try:
        size = float(text)
    except ValueError:
        size = 0
    if not _is_size(size) or size == 1:
        raise UsageError(f'--held-out "{text}": it is a share, as in --held-out 0.05, or rows, as in --held-out 500')
    return size


def row_counts(splits: Mapping[str, float]) -> dict[str, int]:
    """Return the splits that are given as numbers of rows."""
    return {name: int(size) for name, size in splits.items() if size > 1}


def _is_size(size: float) -> bool:
    """Check whether a number is a share of rows, or a number of rows."""
    return 0 < size <= 1 or (1 < size < float("inf") and size == int(size))


def parse_shards(text: str) -> int | None:
    """Return a number of shards, or None for `auto`. Raises UsageError."""
    if text == "auto":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f'--shards "{text}": it is a number from 1 on, or auto')
    return int(text)


# Tokens of one side of a record.
LONGEST = 1 << 20


@dataclasses.dataclass(frozen=True)
class Settings:
    """The choices that decide a dataset's records, besides its source and its tokenizer: equal settings, equal records.

    `options` are the task's own, by name. `splits` are shares to draw by the id's hash, or None if the source's files
    are splits themselves. `shards` are those of the largest split, or None to choose; they cut the same records into
    other files, so two settings that differ in them alone are equal. A new choice is a field here, and the code that
    obeys it: the command line, the manifest, the token cache's key and the comparison of datasets follow from the field.
    """

    task: str = dataclasses.field(metadata={"changes_tokens": True})
    options: dict[str, Any] = dataclasses.field(metadata={"changes_tokens": True})
    input_length: int = option(
        help="maximum input length in tokens, including EOS", minimum=4, changes_tokens=True, section="Length"
    )
    target_length: int = option(
        help="maximum target length in tokens, including EOS", minimum=1, changes_tokens=True, section="Length"
    )
    target: str = option(
        "text",
        (
            "what the model learns: a text; one of the task's classes (always, with an encoder's tokenizer); a tag for "
            "each word; several labels; a number; or masked tokens. The task must provide it"
        ),
        choices=TARGETS,
        changes_tokens=True,
        section="Columns and text",
    )
    truncation: str = option(
        "head_tail", "part of an overlong input to keep", choices=POLICIES, changes_tokens=True, section="Length"
    )
    long: str = option(
        "auto",
        (
            "how to handle rows that exceed a length limit: cut, split or reject. auto: split word-aligned tasks, cut "
            "all others"
        ),
        choices=LONG,
        changes_tokens=True,
        section="Length",
    )
    marker: str = option(
        "extra_id_1",
        "token that head_tail inserts at the cut",
        choices=MARKERS,
        changes_tokens=True,
        section="Advanced",
    )
    layout: str = option(
        "padded",
        ("record layout: padded to a fixed length, ragged without padding, or packed with several examples each"),
        choices=LAYOUTS,
        section="Output",
    )
    masks: bool = option(False, "also write attention_mask and decoder_attention_mask", section="Output")
    keep_newlines: bool = option(
        False,
        "encode each newline as the token <extra_id_2> instead of a space",
        changes_tokens=True,
        section="Columns and text",
    )
    splits: dict[str, float] | None = option(None, _SPLITS, parse=parse_splits, section="Splits and duplicates")
    split_files: tuple[str, ...] = option(
        (),
        "files of each split: train=data/a-*.csv,test=b.csv. Other files are not read",
        section="Splits and duplicates",
    )
    split_column: str = option(
        "",
        "column that names the split of each row: train, dev, test, or another name",
        changes_tokens=True,
        section="Splits and duplicates",
    )
    skip_files: tuple[str, ...] = option((), "glob of files to skip: sample_submission.csv", section="Source")
    held_out: float | None = option(
        None,
        "share or number of training rows to hold out for validation, if the source has no validation split",
        parse=parse_held_out,
        section="Splits and duplicates",
    )
    group_column: str = option(
        "",
        "column whose equal values keep rows in the same split",
        changes_tokens=True,
        section="Splits and duplicates",
    )
    # A digest of the text is kept beside its tokens, where the same text is to be found.
    dedup: str = option(
        "none",
        "remove repeated inputs: exact ignores case and spaces; near also removes near-duplicates",
        choices=DEDUPS,
        changes_tokens=True,
        section="Splits and duplicates",
    )
    # Texts are compared as they were cut, so this changes what is kept beside the tokens.
    dedup_against: tuple[str, ...] = option(
        (),
        "with --dedup: a prepared dataset whose inputs are rejected, too",
        changes_tokens=True,
        is_address=True,
        section="Splits and duplicates",
    )
    # As in Lee et al. 2022 (runs of five words), Rae et al. 2021 (0.8), and Penedo et al. 2024 (112 hashes).
    near_words: int = option(
        5, "with --dedup near: words in each shingle", minimum=1, maximum=100, changes_tokens=True, section="Advanced"
    )
    near_jaccard: float = option(
        0.8,
        "with --dedup near: minimum Jaccard similarity of near-duplicates",
        minimum=0.05,
        maximum=1,
        section="Advanced",
    )
    near_hashes: int = option(
        112,
        "with --dedup near: MinHashes for each text; more hashes find more pairs and take longer",
        minimum=8,
        maximum=4096,
        section="Advanced",
    )
    filter: tuple[str, ...] = option(
        (),
        "filter for the input texts: gopher:least_words=20. t5prep filter lists all filters",
        changes_tokens=True,
        section="Splits and duplicates",
    )
    decontaminate: tuple[str, ...] = option(
        (),
        ("evaluation set, prepared or raw (or data/last#train): reject rows that share a run of words with it"),
        changes_tokens=True,
        is_address=True,
        section="Splits and duplicates",
    )
    # As in GPT-3 (Brown et al. 2020, appendix C) and after it.
    decontaminate_words: int = option(
        13,
        "with --decontaminate: words in a shared run",
        minimum=3,
        maximum=100,
        changes_tokens=True,
        section="Advanced",
    )
    shards: int | None = option(
        None,
        "number of shards of the largest split, or auto",
        minimum=1,
        parse=parse_shards,
        default_text="auto",
        compare=False,
        section="Output",
    )
    seed: int = option(
        0, "random seed of the splits and of the order", minimum=-(1 << 63), maximum=(1 << 63) - 1, section="Advanced"
    )
    limit: int | None = option(
        None, "maximum number of rows to read, for each split if the files are splits", minimum=1, section="Source"
    )
    format: str = option(
        "",
        (
            "file format, if the file names do not tell: csv, tsv, jsonl, parquet, text or conll; document: one row "
            "for each file, with the columns text, folder and file"
        ),
        changes_tokens=True,
        section="Source",
    )
    encoding: str = option("utf-8", "encoding of text files", changes_tokens=True, section="Source")
    delimiter: str = option(
        "",
        "delimiter of CSV columns: a character, or tab [default: the comma or semicolon in the first line]",
        parse=parse_delimiter,
        changes_tokens=True,
        section="Source",
    )
    escape: str = option(
        "", "escape character of CSV files: \\", parse=parse_escape, changes_tokens=True, section="Source"
    )
    columns: str = option(
        "",
        "column names of tables without a header line: text,label",
        parse=parse_columns,
        changes_tokens=True,
        section="Source",
    )
    records: str = option(
        "", "path to the rows of JSON documents: data[].paragraphs[].qas[]", changes_tokens=True, section="Source"
    )

    def __post_init__(self) -> None:
        """Raise UsageError for a value that cannot work with any task."""
        check(self)
        for field in dataclasses.fields(self):
            if field.metadata.get("is_address"):
                object.__setattr__(self, field.name, tuple(Address(address) for address in getattr(self, field.name)))
                _check_distinct(flag(field.name), getattr(self, field.name))
        parse_delimiter(self.delimiter)
        from t5prep.reading import encodings  # which loads Arrow: `--help` needs none of it

        encodings.check_name(self.encoding)
        if self.target == "text" and self.target_length < 2:
            raise UsageError(f"--target-length {self.target_length}: it is at least 2")
        for name in ("input_length", "target_length"):
            if getattr(self, name) > LONGEST:
                raise UsageError(
                    f"--{name.replace('_', '-')} {getattr(self, name)}: it is at most {LONGEST:,}. A padded record has so many "
                    "tokens, whatever its text, and each is held in memory"
                )
        if self.masks and self.layout != "padded":
            raise UsageError(f"--masks goes with --layout padded, not with {self.layout}: other layouts need no masks")
        if self.dedup_against and self.dedup == "none":
            raise UsageError(
                "--dedup-against goes with --dedup exact or --dedup near, which say what a repeated text is"
            )
        chosen = [
            flag(name)
            for name in ("splits", "split_files", "split_column")
            if getattr(self, name) and (name != "splits" or (self.split_files or self.split_column))
        ]
        if self.split_column and self.held_out is not None:
            chosen.append("--held-out")
        if len(chosen) > 1:
            raise UsageError(f"{' and '.join(chosen)}: each says which split a row is of. Leave one of them out")
        if self.held_out is not None and self.splits is not None:
            raise UsageError(
                "--held-out divides what the source gives to train, and --splits all rows: choose one of them"
            )

    def __eq__(self, other: object) -> bool:
        """Return whether both make the same records of the same source with the same tokenizer."""
        return isinstance(other, Settings) and not any(differences(self, other))

    __hash__ = None  # type: ignore[assignment]

    @property
    def is_packed(self) -> bool:
        """Check whether a record holds several examples."""
        return self.layout == "packed"

    @property
    def marked(self) -> bool:
        """Return whether a sentinel stands for the middle of an input that was cut."""
        return self.truncation == "head_tail" and self.marker != "none"

    @property
    def drawn_by_id(self) -> bool:
        """Return whether a row's id alone decides its split, so that no id and no text can be in two."""
        return self.splits is not None and not self.group_column and self.dedup != "exact"

    @property
    def file_options(self) -> FileOptions:
        """Return how the files of the source are read."""
        return FileOptions(self.format, self.encoding, self.delimiter, self.escape, self.columns, self.records)

    def token_choices(self) -> dict[str, object]:
        """Return the fields of which another value gives other tokens."""
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.metadata["changes_tokens"]
        }


def _check_distinct(option_name: str, addresses: tuple[Address, ...]) -> None:
    """Raise UsageError for two addresses that differ only in what is never recorded: one name would stand for both."""
    for address in set(addresses):
        if len({candidate.request for candidate in addresses if candidate == address}) > 1:
            raise UsageError(
                f"{option_name} names {address} twice with other values, which are not recorded because they may be secret. "
                "Download one of the two files, and name the file."
            )


def differences(existing_settings: Settings, current_settings: Settings) -> Iterator[str]:
    """Yield each choice of the first settings that is another one in the second, as it would be typed.

    >>> one = Settings("sst2", {}, 128, 4, seed=1)
    >>> list(differences(one, dataclasses.replace(one, seed=0, layout="ragged", shards=4)))
    ['--layout padded', '--seed 1']
    """
    for field in dataclasses.fields(Settings):
        existing_value, current_value = getattr(existing_settings, field.name), getattr(current_settings, field.name)
        if not field.compare or (
            existing_value == current_value
            and (field.name != "splits" or list(existing_value or ()) == list(current_value or ()))
        ):
            continue  # the same shares in another order draw other splits
        if field.name == "task":
            yield f"task {existing_value}"
        elif field.name == "options":
            names = dict.fromkeys([*existing_value, *current_value])
            yield from (
                as_cli_option(name, existing_value.get(name))
                for name in names
                if existing_value.get(name) != current_value.get(name)
            )
        else:
            yield as_cli_option(field.name, existing_value)
