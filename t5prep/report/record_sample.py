"""Measure what the manifest does not hold, on the first records of a split (a random sample: the order is by hash)."""

import dataclasses
import re
from pathlib import Path

from t5prep.dataset import inspect_records
from t5prep.dataset.inspect_records import Shown
from t5prep.dataset.manifest import Manifest
from t5prep.prepare import record_counts
from t5prep.tokens.tokenizer import Tokenizer

# Enough records for shares that are exact to a percent; reading them takes about a second.
RECORDS = 2000
_SHOWN = 3
# T5's vocabulary has no "<": it becomes the unknown piece, which decoding writes as ⁇.
_MARKUP = re.compile(r"[<⁇]\s*/?\s*[a-zA-Z][^<>⁇]*>")


@dataclasses.dataclass
class Drawn:
    """Hold a sample of a split: its first records, those that lost most tokens, and how targets and markup go together.

    `markup` maps each target to its records (with markup, without); it is None where there are too many different
    targets to be classes. `unknown` counts records with unknown tokens.
    """

    split: str
    records: int = 0
    shown: list[Shown] = dataclasses.field(default_factory=list)
    cut: list[Shown] = dataclasses.field(default_factory=list)
    unknown: int = 0
    markup: dict[str, tuple[int, int]] | None = dataclasses.field(default_factory=dict)

    @property
    def association(self) -> float:
        """Return Cramér's V of target and markup, from 0 to 1."""
        counts: dict[tuple[int, ...], tuple[int, int]] = {
            (i,): pair for i, pair in enumerate((self.markup or {}).values())
        }
        return record_counts.association(counts)


def draw(
    data: str | Path, dataset_manifest: Manifest, loaded_tokenizer: Tokenizer, *, split: str, tokenizer: str | None
) -> Drawn:
    """Return a sample of the first records of a split. Raises DatasetError."""
    drawn = Drawn(split)
    marker = loaded_tokenizer.sentinel(1) if marked(dataset_manifest) else None
    worst = dataset_manifest.ledger["inputs"].get("worst", [])
    lost = {entry["id"]: entry["lost"] for entry in worst if entry["split"] == split}
    for record in inspect_records.records(data, split=split, count=RECORDS, tokenizer=tokenizer):
        drawn.records += 1
        if len(drawn.shown) < _SHOWN:
            drawn.shown.append(record)
        if lost.get(record.id) or (marker is not None and marker in record.input_ids):
            drawn.cut = sorted([*drawn.cut, record], key=lambda candidate: -lost.get(candidate.id, 0))[:_SHOWN]
        drawn.unknown += loaded_tokenizer.unk_id in record.input_ids
        if drawn.markup is not None:
            has = bool(_MARKUP.search(_plain(record.inputs)))
            target = record.targets.removesuffix("</s>").strip()
            with_markup, without = drawn.markup.get(target, (0, 0))
            drawn.markup[target] = with_markup + has, without + (not has)
            if len(drawn.markup) > record_counts.MOST_LABELS:
                drawn.markup = None
    return drawn


def marked(dataset_manifest: Manifest) -> bool:
    """Check whether a sentinel in an input marks its cut-out middle. In span corruption it marks a hidden span."""
    return dataset_manifest.settings.marked and not dataset_manifest.task.hides_spans


def _plain(text: str) -> str:
    """Return a decoded text without the control tokens, which look like markup."""
    return re.sub(r"</?s>|<pad>|<extra_id_\d+>|<unused_\d+>", " ", text)
