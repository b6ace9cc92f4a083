"""Write the card of a prepared dataset: README.md as the Hugging Face Hub reads it, from the manifest alone."""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from t5prep.dataset.manifest import Manifest, Split
from t5prep.tasks.options import spelled

NAME = "README.md"
# A README with this line was written here, and is written again; any other belongs to the user and stays.
MARK = "<!-- written by t5prep: it is written again when the dataset is -->"
# Licences by the names that the Hub has for them (a part of its list).
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
_TASKS = {"bleu": "translation", "rouge": "summarization", "squad": "question-answering"}
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))


def text(manifest: Manifest) -> str:
    """Return the card: a header in YAML, and what the manifest says in words and tables. The same manifest, the same card."""
    header = "\n".join(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in _header(manifest).items())
    return "\n".join(["---", header, "---", MARK, "", *_body(manifest), ""])


def is_ours(content: bytes) -> bool:
    """Check whether a README was written by t5prep."""
    return MARK.encode() in content[:65_536]


def place_of(manifest: Manifest) -> str:
    """Return where the rows came from, without the folders of anyone's machine."""
    uri = manifest.source.uri
    return uri if ":" in uri else Path(uri).name


def licence(manifest: Manifest) -> str:
    """Return the licence by the Hub's name of it: `other` for one that it has no name for, "" where none is known."""
    name = manifest.source.licence.lower()
    return name if name in _LICENCES else "other" if name else ""


def _header(manifest: Manifest) -> dict[str, Any]:
    """Return the facts of the header, as JSON values, which are YAML too."""
    examples = sum(split.examples for split in manifest.splits.values())
    size = next((name for most, name in _SIZES if examples < most), "n>1M")
    kinds = [_TASKS[metric] for metric in manifest.task.metrics if metric in _TASKS]
    facts: dict[str, Any] = {
        "pretty_name": f"{manifest.settings.task}, prepared for T5",
        "license": licence(manifest),
        "license_name": manifest.source.licence if licence(manifest) == "other" else "",
        "task_categories": ["text-classification"] if manifest.task.classes else kinds or ["text-generation"],
        "size_categories": [size],
        "tags": ["t5", "t5prep", "tfrecord", manifest.settings.task],
        "source_datasets": [place_of(manifest).removeprefix("hf:").partition("#")[0].partition("@")[0]]
        if manifest.source.uri.startswith("hf:")
        else [],
        "viewer": False,
        "dataset_info": {
            "features": [
                {"name": name, "sequence": "string" if feature.dtype == "bytes" else feature.dtype}
                for name, feature in manifest.features.items()
            ],
            "splits": [
                {"name": name, "num_examples": split.records, "num_bytes": _bytes(split)}
                for name, split in manifest.splits.items()
            ],
        },
    }
    return {key: value for key, value in facts.items() if value not in ("", [])}


def _body(manifest: Manifest) -> Iterator[str]:
    source, settings = manifest.source, manifest.settings
    yield f"# {settings.task}, prepared for T5\n"
    yield "TFRecord shards of token ids, made by `t5prep prepare`. `manifest.json` has every number of this page, and the SHA-256 of"
    yield "each shard; `t5prep verify` checks them. To read the records: `t5prep.train_batches(FOLDER)`.\n"
    yield "## Source\n"
    yield f"* Rows: `{place_of(manifest)}`{f', revision `{source.revision}`' if source.revision else ''}"
    yield f"* Licence: {source.licence or 'not known: ask where the rows are from'}"
    if source.citation:
        yield f"* Citation: {source.citation}"
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
                    for number in (split.records, split.examples, *split.tokens.values(), len(split.shards))
                ),
                f"{_bytes(split):,}",
            )
            for name, split in manifest.splits.items()
        ],
    )
    if manifest.task.classes:
        yield f"\nClasses: {', '.join(f'`{word}`' for word in manifest.task.classes)}"
    yield "\n## How it was made\n"
    chosen = [
        spelled(field.name, value)
        for field in dataclasses.fields(settings)
        if field.name not in ("task", "options") and (value := getattr(settings, field.name)) != field.default
    ]
    options = [spelled(name, value) for name, value in settings.options.items() if value not in ("", [], None, False)]
    yield f"`t5prep prepare {settings.task} {' '.join(text for text in [*options, *chosen] if not text.startswith('no '))}`\n"
    yield f"* Tokenizer: `{Path(manifest.tokenizer.name).name}`, SHA-256 `{manifest.tokenizer.sha256}`"
    cut = manifest.ledger.get("inputs", {})
    if cut.get("rows_cut"):
        yield f"* Cut: {cut['rows_cut']:,} inputs lost {cut['tokens_lost']:,} tokens"
    yield "\n## What became of the rows\n"
    totals = [sum(getattr(rows, name) for rows in manifest.rows.values()) for name in _BECAME]
    yield from _table(_BECAME, [tuple(f"{total:,}" for total in totals)])
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
        yield f"\n{near.clusters:,} clusters of texts that are nearly the same; {near.across_splits:,} rows stood in another split."
    for warning in manifest.warnings:
        yield f"\n> {warning}"


_MOST_FILES = 100
_BECAME = ("read", "examples", "rejected", "duplicates", "blank")


def _bytes(split: Split) -> int:
    return sum(shard.bytes for shard in split.shards)


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table in Markdown."""
    yield ""
    yield f"| {' | '.join(names)} |"
    yield f"|{'---|' * len(names)}"
    for row in rows:
        yield f"| {' | '.join(map(_literal, row))} |"


def _literal(text: str) -> str:
    """Return a text that Markdown shows as it is: names of files and reasons come from strangers.

    >>> _literal("<b>[a](http://x)|`")
    '&#60;b&#62;&#91;a&#93;(http://x)&#124;&#96;'
    """
    return "".join(
        f"&#{ord(character)};" if character in "\\`*[]<>|!~&" else character if character.isprintable() else " "
        for character in text
    )
