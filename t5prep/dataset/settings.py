"""Define the settings of `t5prep prepare`. Each field is an option of the command, and the manifest holds all of them."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from t5prep.errors import UsageError
from t5prep.io.addresses import Address
from t5prep.json_values import whole_number
from t5prep.options.fields import as_cli_option, check, flag, option, option_of
from t5prep.options.files import FileOptions, parse_delimiter

# The kinds of targets in `tasks/targets.py`. They are repeated here, because that module imports Arrow, and `--help` must not.
TARGETS = ("text", "class", "tags", "labels", "number", "tokens")
# The choices of options, from here on.
POLICIES = ("head_tail", "head", "tail")
MARKERS = ("extra_id_1", "none")
_EXAMPLE = "Write, for example: --splits train=0.9,validation=0.1 or --splits validation=15000"
LAYOUTS = ("padded", "ragged", "packed")
LONG = ("auto", "cut", "split", "reject")
DEDUPS = ("none", "exact", "near")
_NEAR = {"dedup": ("near",)}
_SPLITS = (
    "split sizes, as shares drawn by the hash of the id, or as numbers of rows (validation=15000) [default: "
    "the splits of the files, or train=0.9,validation=0.1]"
)


def parse_splits(text: str) -> dict[str, float]:
    """Return the sizes of splits, for `--splits`: shares of rows, which add up to 1, or numbers of rows above 1.

    Numbers of rows are taken first, and the shares divide the remaining rows. Without shares, the remaining rows are the
    training split. Raises UsageError.

    >>> parse_splits("train=0.9,validation=0.1")
    {'train': 0.9, 'validation': 0.1}
    >>> parse_splits("validation=15000")
    {'validation': 15000.0, 'train': 1.0}
    """
    from t5prep.sources.split_names import is_split_name  # imported here, because it imports all of `sources`

    splits: dict[str, float] = {}
    items = text.split(",")
    for item in items:
        name, _, share = item.strip().partition("=")
        try:
            splits[name] = float(share)
        except ValueError:
            raise UsageError(
                f'--splits "{text}" contains "{item}", which is not name=share or name=rows. {_EXAMPLE}',
                code="option.malformed",
            ) from None
        if not is_split_name(name) or not _is_size(splits[name]):
            raise UsageError(
                f'--splits "{text}" contains the invalid split "{item}". A split needs a valid name, and a '
                f"share up to 1 or a whole number of rows. {_EXAMPLE}",
                code="option.malformed",
            )
    shares = [size for size in splits.values() if size <= 1]
    if row_counts(splits) and not shares and "train" not in splits:
        splits["train"], shares = 1.0, [1.0]
    problem, example = "", _EXAMPLE
    if len(items) != len({item.partition("=")[0].strip() for item in items}):
        problem = "names a split twice"
    elif not shares:
        problem = "has only numbers of rows, so the remaining rows have no split"
        rest = [f"{name}={size:.0f}" for name, size in splits.items() if name != "train"]
        example = f"Give the training split the remaining rows: --splits {','.join([*rest, 'train=1'])}"
    elif abs(sum(shares) - 1) > 1e-6:
        problem = f"has shares that add up to {sum(shares):g} instead of 1"
    if problem:
        raise UsageError(f'--splits "{text}" {problem}. {example}', code="split.invalid-shares")
    return splits


def parse_held_out(text: str) -> float:
    """Return a share between 0 and 1, or a whole number of rows, for `--held-out`. Raises UsageError.

    >>> parse_held_out("0.05"), parse_held_out("500")
    (0.05, 500.0)
    """
    try:
        size = float(text)
    except ValueError:
        size = 0
    if size == 1:
        raise UsageError(
            f'--held-out "{text}" would leave no training rows, because 1 is the share of all rows. Use a smaller share, as in '
            "--held-out 0.05, or at least 2 rows.",
            code="option.out-of-range",
        )
    if not _is_size(size):
        raise UsageError(
            f'--held-out "{text}" is neither a share nor a number of rows. Use a share, as in --held-out '
            "0.05, or rows, as in --held-out 500",
            code="option.malformed",
        )
    return size


def row_counts(splits: Mapping[str, float]) -> dict[str, int]:
    """Return the splits whose sizes are numbers of rows, not shares."""
    return {name: int(size) for name, size in splits.items() if size > 1}


def _is_size(size: float) -> bool:
    """Check whether `size` is a share above 0, up to 1, or a whole number of rows."""
    return 0 < size <= 1 or (1 < size < float("inf") and size == int(size))


def parse_shards(text: str) -> int | None:
    """Return the number of shards, or None for `auto`, for `--shards`. Raises UsageError."""
    if text == "auto":
        return None
    if not (shards := whole_number(text)):
        raise UsageError(
            f'--shards "{text:.60}" is neither a positive whole number nor auto. Use, for example, --shards 8 '
            "or --shards auto",
            code="option.malformed",
        )
    return shards


# Maximum number of tokens of an input, or of a target: a padded record holds that many in memory.
LONGEST = 1 << 20


@dataclasses.dataclass(frozen=True)
class Settings:
    """Hold the settings that decide a dataset's records, beside its source and its tokenizer.

    `options` are the task's options by name. `splits` is None if the files of the source are splits. `shards` cuts the same
    records into other files, so two settings that differ in `shards` alone are equal.

    To add a setting, add a field here, and the code that uses it. The command line, the manifest, the key of the token
    cache (`changes_tokens`) and the comparison of datasets are made from the fields.
    """

    task: str = dataclasses.field(metadata={"changes_tokens": True})
    options: dict[str, Any] = dataclasses.field(metadata={"changes_tokens": True})
    input_length: int = option(
        help="maximum input length in tokens, including EOS",
        minimum=4,
        maximum=LONGEST,
        changes_tokens=True,
        section="Length",
    )
    target_length: int = option(
        help="maximum target length in tokens, including EOS",
        minimum=1,
        maximum=LONGEST,
        changes_tokens=True,
        section="Length",
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
        "with --truncation head_tail: token at the cut",
        choices=MARKERS,
        changes_tokens=True,
        only_with={"truncation": ("head_tail",)},
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
        "files of each split, such as train=data/a-*.csv,test=b.csv; other files are not read",
        section="Splits and duplicates",
    )
    split_column: str = option(
        "",
        "column that names the split of each row: train, dev, test, or another name",
        changes_tokens=True,
        section="Splits and duplicates",
    )
    skip_files: tuple[str, ...] = option((), "files to skip, by name or glob, such as sample_*.csv", section="Source")
    held_out: float | None = option(
        None,
        "share or number of training rows to hold out for validation, if the source has no validation split",
        parse=parse_held_out,
        section="Splits and duplicates",
    )
    group_column: str = option(
        "",
        "column that groups rows: all rows of a group are in the same split",
        changes_tokens=True,
        section="Splits and duplicates",
    )
    # It changes the cached blocks, because with it a digest of each text is stored beside the tokens.
    dedup: str = option(
        "none",
        "remove repeated inputs: exact ignores case and spaces; near also removes near-duplicates",
        choices=DEDUPS,
        changes_tokens=True,
        section="Splits and duplicates",
    )
    # It changes the cached blocks, because texts are compared after they were cut.
    dedup_against: tuple[str, ...] = option(
        (),
        "with --dedup: prepared dataset whose inputs are rejected as repetitions",
        changes_tokens=True,
        is_address=True,
        only_with={"dedup": ("exact", "near")},
        section="Splits and duplicates",
    )
    # The defaults are those of Lee et al. 2022 (5 words), Rae et al. 2021 (0.8) and Penedo et al. 2024 (112 hashes).
    near_words: int = option(
        5,
        "with --dedup near: words in each shingle",
        minimum=1,
        maximum=100,
        changes_tokens=True,
        only_with=_NEAR,
        section="Advanced",
    )
    near_jaccard: float = option(
        0.8,
        "with --dedup near: minimum Jaccard similarity of near-duplicates",
        minimum=0.05,
        maximum=1,
        only_with=_NEAR,
        section="Advanced",
    )
    near_hashes: int = option(
        112,
        "with --dedup near: MinHashes for each text; more hashes find more pairs and take longer",
        minimum=8,
        maximum=4096,
        only_with=_NEAR,
        section="Advanced",
    )
    filter: tuple[str, ...] = option(
        (),
        "filter for the input texts, such as gopher:least_words=20; `t5prep filter` lists all",
        changes_tokens=True,
        section="Splits and duplicates",
    )
    decontaminate: tuple[str, ...] = option(
        (),
        (
            "evaluation set, raw or prepared (data/last, or one of its splits: data/last#train): reject rows that share "
            "a run of words with it"
        ),
        changes_tokens=True,
        is_address=True,
        section="Splits and duplicates",
    )
    # The default is that of GPT-3 (Brown et al. 2020, appendix C).
    decontaminate_words: int = option(
        13,
        "with --decontaminate: words in a shared run",
        minimum=3,
        maximum=100,
        changes_tokens=True,
        only_with={"decontaminate": ()},
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
    format: str = option_of(FileOptions, "format")
    encoding: str = option_of(FileOptions, "encoding")
    delimiter: str = option_of(FileOptions, "delimiter")
    escape: str = option_of(FileOptions, "escape")
    columns: str = option_of(FileOptions, "columns")
    records: str = option_of(FileOptions, "records")

    def __post_init__(self) -> None:
        """Raise UsageError for a value, or a combination of values, that no task can use."""
        check(self)
        for field in dataclasses.fields(self):
            if field.metadata.get("is_address"):
                object.__setattr__(self, field.name, tuple(Address(address) for address in getattr(self, field.name)))
                _check_distinct(flag(field.name), getattr(self, field.name))
        parse_delimiter(self.delimiter)
        from t5prep.reading import encodings  # imported here, because it imports Arrow, and `--help` must not

        encodings.check_name(self.encoding)
        if self.target == "text" and self.target_length < 2:
            raise UsageError(
                f"--target-length {self.target_length} is too small. Use at least 2.", code="option.out-of-range"
            )
        if self.masks and self.layout != "padded":
            raise UsageError(
                f"--masks needs --layout padded, but the layout is {self.layout}. Use --layout padded, or "
                "remove --masks.",
                code="option.missing-prerequisite",
            )
        chosen = [
            flag(name)
            for name in ("splits", "split_files", "split_column")
            if getattr(self, name) and (name != "splits" or (self.split_files or self.split_column))
        ]
        if self.split_column and self.held_out is not None:
            chosen.append("--held-out")
        if len(chosen) > 1:
            raise UsageError(
                f"{' and '.join(chosen)} cannot be combined, because each assigns rows to splits. Use only "
                "one of them.",
                code="option.conflict",
            )
        if self.held_out is not None and self.splits is not None:
            raise UsageError(
                "--held-out divides only the train rows of the source, but --splits divides all rows. Use "
                "either --held-out or --splits, not both.",
                code="option.conflict",
            )

    def __eq__(self, other: object) -> bool:
        """Check whether both settings make the same records from the same source with the same tokenizer."""
        return isinstance(other, Settings) and not any(differences(self, other))

    __hash__ = None  # type: ignore[assignment]

    @property
    def is_packed(self) -> bool:
        """Check whether records may hold several examples."""
        return self.layout == "packed"

    @property
    def marked(self) -> bool:
        """Check whether a sentinel replaces the middle that truncation cuts out of an input."""
        return self.truncation == "head_tail" and self.marker != "none"

    @property
    def drawn_by_id(self) -> bool:
        """Check whether a row's id alone decides its split, so that no id is in two splits."""
        return self.splits is not None and not self.group_column and self.dedup != "exact"

    @property
    def file_options(self) -> FileOptions:
        """Return the options of reading the source's files."""
        return FileOptions(**{field.name: getattr(self, field.name) for field in dataclasses.fields(FileOptions)})

    def token_choices(self) -> dict[str, object]:
        """Return the fields, by name, whose values decide the tokens: the settings in the key of the token cache."""
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.metadata["changes_tokens"]
        }


def _check_distinct(option_name: str, addresses: tuple[Address, ...]) -> None:
    """Raise UsageError if two addresses differ only in credentials, such as the query of a URL.

    Credentials are never recorded, so the manifest would have one name for both.
    """
    for address in set(addresses):
        if len({candidate.request for candidate in addresses if candidate == address}) > 1:
            raise UsageError(
                f"{option_name} names {address} twice. The two addresses differ only in values that are not "
                "recorded, because they may be secret. Download one of the two files, and name the downloaded "
                "file.",
                code="source.ambiguous-address",
            )


def differences(existing_settings: Settings, current_settings: Settings) -> Iterator[str]:
    """Yield, as typed, each value of `existing_settings` that is another one in `current_settings`.

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
            continue  # dicts with another order are equal, but the same shares in another order draw other splits
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
