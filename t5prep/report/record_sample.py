"""What can only be learned from records themselves: read from the first of them, which are a fair draw (hashed order)."""

import dataclasses
import re
from pathlib import Path

from t5prep.dataset import inspect_records
from t5prep.dataset.inspect_records import Shown
from t5prep.dataset.manifest import Manifest
from t5prep.prepare import record_counts
from t5prep.tokens.tokenizer import Tokenizer

# Enough for shares to a percent; read in about a second.
RECORDS = 2000
_SHOWN = 3
# T5's vocabulary has no "<": it comes back as the unknown piece, which decoding writes as ⁇.
_MARKUP = re.compile(r"[<⁇]\s*/?\s*[a-zA-Z][^<>⁇]*>")


@dataclasses.dataclass
class Drawn:
    """Of the first records of a split: some as they came, those that lost most, and what targets and markup share.

    `markup` counts (target, with markup, without); None where there are too many different targets to be classes.
    `unknown` counts records with unknown tokens.
    """

    split: str
    records: int = 0
    shown: list[Shown] = dataclasses.field(default_factory=list)
    cut: list[Shown] = dataclasses.field(default_factory=list)
    unknown: int = 0
    markup: dict[str, tuple[int, int]] | None = dataclasses.field(default_factory=dict)

    @property
    def association(self) -> float:
        """Cramér's V of target and markup, 0 to 1."""
        counts: dict[tuple[int, ...], tuple[int, int]] = {
            (i,): pair for i, pair in enumerate((self.markup or {}).values())
        }
        return record_counts.association(counts)


def draw(data: str | Path, made: Manifest, words: Tokenizer, *, split: str, tokenizer: str | None) -> Drawn:
    """The first records of a split. Raises DatasetError."""
    drawn = Drawn(split)
    marker = words.sentinel(1) if marked(made) else None
    worst = made.ledger["inputs"].get("worst", [])
    lost = {one["id"]: one["lost"] for one in worst if one["split"] == split}
    for record in inspect_records.records(data, split=split, count=RECORDS, tokenizer=tokenizer):
        drawn.records += 1
        if len(drawn.shown) < _SHOWN:
            drawn.shown.append(record)
        if lost.get(record.id) or (marker is not None and marker in record.input_ids):
            drawn.cut = sorted([*drawn.cut, record], key=lambda one: -lost.get(one.id, 0))[:_SHOWN]
        drawn.unknown += words.unk_id in record.input_ids
        if drawn.markup is not None:
            has = bool(_MARKUP.search(_plain(record.inputs)))
            target = record.targets.removesuffix("</s>").strip()
            with_markup, without = drawn.markup.get(target, (0, 0))
            drawn.markup[target] = with_markup + has, without + (not has)
            if len(drawn.markup) > record_counts.MOST_LABELS:
                drawn.markup = None
    return drawn


def marked(made: Manifest) -> bool:
    """Whether a sentinel in an input says that its middle was cut out. In span corruption it says something else."""
    return made.settings.marked and not made.task.hides_spans


def _plain(text: str) -> str:
    """A decoded text without the control tokens that decoding writes like markup."""
    return re.sub(r"</s>|<extra_id_\d+>|<unused_\d+>", " ", text)
