"""Write the dataset card (README.md) of a prepared dataset for the Hugging Face Hub, from its manifest alone.

The card is Markdown, and most of its texts come from strangers: file names, reasons, licences. Each passes through
`literal` or `code`.
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from t5prep.dataset.manifest import Manifest
from t5prep.io.progress import number_of
from t5prep.options.fields import as_cli_option

NAME = "README.md"
# `push` overwrites a README only if it has this line. Any other README belongs to the user.
MARK = "<!-- written by t5prep: it is written again when the dataset is -->"
# Names of licences on the Hub: a part of its list. Other licences are called `other` there.
_LICENCES = (
    *(
        "apache-2.0",
        "mit",
        "cc0-1.0",
        "cc-by-2.0",
        "cc-by-3.0",
        "cc-by-4.0",
        "cc-by-sa-3.0",
        "cc-by-sa-4.0",
        "cc-by-nc-4.0",
    ),
    *("cc-by-nc-sa-4.0", "odc-by", "odbl", "pddl", "gpl-3.0", "bsd-3-clause", "openrail", "unknown"),
)
# A task's metric → the Hub's task category; then the Hub's size categories by their upper ends.
_TASKS = {"bleu": "translation", "rouge": "summarization", "squad": "question-answering"}
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))

_MOST_FILES = 100  # source files in the card; the manifest lists all
_ROW_COUNTS = ("read", "examples", "rejected", "duplicates", "blank")  # fields of rejected_rows.Rows


def text(manifest: Manifest) -> str:
    """Return the text of the card: the Hub's YAML header, then the manifest's facts as Markdown.

    It depends on the manifest alone: equal manifests have equal cards.
    """
    from huggingface_hub import DatasetCard  # imported here: `prepare` starts without it

    return str(DatasetCard("\n".join(["---", _header(manifest), "---", MARK, "", *_body(manifest), ""])))


def table_of(split: str) -> str:
    """Return the name, inside a dataset's folder, of the Parquet file with the records of `split` as texts."""
    return f"table/{split}.parquet"


def _hub_names(splits: Iterable[str]) -> dict[str, str]:
    """Return the name of each split on the Hub. All are different and have only letters, digits and `_`.

    None is `all`, by which the Hub names all splits together.
    """
    names: dict[str, str] = {}
    # Valid names first, so that they remain as they are: with `a_b` and `a-b`, the second becomes `a_b_`.
    for split in sorted(splits, key=lambda name: re.search(r"\W", name) is not None):
        hub_name = re.sub(r"\W", "_", split)
        while hub_name in ("all", *names.values()):
            hub_name += "_"
        names[split] = hub_name
    return {split: names[split] for split in splits}


def is_ours(content: bytes) -> bool:
    """Check whether t5prep wrote this README, given its `content`."""
    return MARK.encode() in content[:65_536]


def place_of(manifest: Manifest) -> str:
    """Return the source of the rows for publication: a URI, or a file's name without the folders of the user's machine."""
    uri = manifest.source.uri
    return uri if ":" in uri else Path(uri).name


def licence(manifest: Manifest) -> str:
    """Return the Hub's name of the dataset's licence: `other` if the Hub has none, "" if the licence is unknown."""
    name = manifest.source.licence.lower()
    return name if name in _LICENCES else "other" if name else ""


def _header(manifest: Manifest) -> str:
    """Return the YAML header of the card, without its `---` lines."""
    from huggingface_hub import DatasetCardData

    examples = sum(split.examples for split in manifest.splits.values())
    size = next((name for max_examples, name in _SIZES if examples < max_examples), "n>1M")
    kinds = [_TASKS[metric] for metric in manifest.task.metrics if metric in _TASKS]
    hub = manifest.source.uri.startswith("hf:")
    facts = DatasetCardData(
        pretty_name=f"{manifest.settings.task}, prepared for T5",
        license=licence(manifest) or None,
        license_name=manifest.source.licence if licence(manifest) == "other" else None,
        task_categories=["text-classification"] if manifest.task.classes else kinds or ["text-generation"],
        size_categories=[size],
        tags=["t5", "t5prep", "tfrecord", manifest.settings.task],
        source_datasets=[place_of(manifest).removeprefix("hf:").partition("#")[0].partition("@")[0]] if hub else None,
        # The Hub's viewer and `datasets` read the tables that `push` writes beside the shards, because neither reads
        # TFRecord (huggingface.co/docs/hub/datasets-manual-configuration).
        configs=[
            {
                "config_name": "default",
                "data_files": [
                    {"split": hub_name, "path": table_of(name)}
                    for name, hub_name in _hub_names(manifest.splits).items()
                    if manifest.splits[name].records
                ],
            }
        ],
    )
    return str(facts.to_yaml())


def _body(manifest: Manifest) -> Iterator[str]:
    """Yield the lines of the card after its header: source, splits, settings, cut and rejected rows, warnings."""
    source, settings = manifest.source, manifest.settings
    yield f"# {literal(settings.task)}, prepared for T5\n"
    yield "TFRecord shards of token ids, made by `t5prep prepare`. `manifest.json` has every number of this page, and the SHA-256 of"
    yield "each shard; `t5prep verify` checks them. To read the records: `t5prep.train_batches(FOLDER)`. On the Hub, `table/` has"
    yield "them as texts; elsewhere, `t5prep table FOLDER OUT.parquet` writes them.\n"
    yield "## Source\n"
    yield f"* Rows: {code(place_of(manifest))}{f', revision {code(source.revision)}' if source.revision else ''}"
    yield f"* Licence: {literal(source.licence) or 'not known: ask where the rows are from'}"
    if source.citation:
        yield f"* Citation: {literal(source.citation)}"
    yield from _table(
        ("file", "bytes", "SHA-256"), [(f.name, f"{f.bytes:,}", f.sha256) for f in source.files[:_MOST_FILES]]
    )
    if len(source.files) > _MOST_FILES:
        yield f"\nand {len(source.files) - _MOST_FILES:,} more files, which the manifest names."
    yield "\n## Splits\n"
    yield from _table(
        ("split", "records", "examples", "input tokens", "target tokens", "shards", "bytes"),
        [
            (
                name,
                *(
                    f"{number:,}"
                    for number in (
                        split.records,
                        split.examples,
                        split.tokens["inputs"],
                        split.tokens["targets"],
                        len(split.shards),
                    )
                ),
                f"{sum(shard.bytes for shard in split.shards):,}",
            )
            for name, split in manifest.splits.items()
        ],
    )
    if manifest.task.classes:
        yield f"\nClasses: {', '.join(map(code, manifest.task.classes))}"
    yield "\n## How it was made\n"
    chosen = [
        as_cli_option(field.name, value)
        for field in dataclasses.fields(settings)
        if field.name not in ("task", "options") and (value := getattr(settings, field.name)) != field.default
    ]
    options = [
        as_cli_option(name, value) for name, value in settings.options.items() if value not in ("", [], None, False)
    ]
    words = ["t5prep prepare", settings.task, *(text for text in [*options, *chosen] if not text.startswith("no "))]
    yield f"{code(' '.join(words))}\n"
    yield f"* Tokenizer: {code(Path(manifest.tokenizer.name).name)}, SHA-256 `{literal(manifest.tokenizer.sha256)}`"
    cut = manifest.ledger["inputs"]
    if cut["rows_cut"]:
        yield f"* Cut: {number_of(cut['rows_cut'], 'input')} lost {number_of(cut['tokens_lost'], 'token')}"
    yield "\n## What became of the rows\n"
    totals = manifest.row_totals()
    yield from _table(_ROW_COUNTS, [tuple(f"{getattr(totals, name):,}" for name in _ROW_COUNTS)])
    if (split := manifest.ledger.get("split", {})).get("rows"):
        yield f"\n{number_of(split['rows'], 'row')}, too long for one example, became {number_of(split['examples'], 'example')}."
    if manifest.rejected:
        yield ""
        yield from _table(
            ("rejected for", "rows", "tokens"),
            [
                (reason, f"{number:,}", f"{manifest.rejected_tokens.get(reason, 0):,}")
                for reason, number in manifest.rejected.items()
            ],
        )
    if manifest.near_duplicates:
        near = manifest.near_duplicates
        clusters, moved = number_of(near.clusters, "cluster"), number_of(near.across_splits, "row")
        yield f"\n{clusters} of texts that are nearly the same; {moved} stood in another split."
    for warning in manifest.warnings:
        yield f"\n> {literal(warning)}"


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a Markdown table with the columns `names`, after an empty line."""
    yield ""
    yield f"| {' | '.join(names)} |"
    yield f"|{'---|' * len(names)}"
    for row in rows:
        yield f"| {' | '.join(map(literal, row))} |"


def code(text: str) -> str:
    """Return `text` as inline code in Markdown. The tag `<code>` is safe, unlike backticks, which `text` may contain."""
    return f"<code>{literal(text)}</code>"


def literal(text: str) -> str:
    """Return `text` with Markdown's and HTML's special characters escaped, and unprintable ones replaced by spaces.

    >>> literal("<b>[a](http://x)|`")
    '&#60;b&#62;&#91;a&#93;(http://x)&#124;&#96;'
    """
    return "".join(
        f"&#{ord(character)};" if character in "\\`*[]<>|!~&" else character if character.isprintable() else " "
        for character in text
    )
