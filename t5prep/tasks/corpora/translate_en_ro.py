"""English → Romanian: WMT 2016, as T5 was trained on it.

Source   The Hub's wmt/wmt16, config ro-en: 610,320 / 1,999 / 1,999 pairs, `translation: {"en": ..., "ro": ...}`; two
         files of lines, `train.source` and `train.target` (or `.en` and `.ro`); or columns `source` and `target`.
Example  translate English to Romanian: A plane is taking off. → Un avion decolează.
Paper    Bojar et al. 2016, Findings of the 2016 Conference on Machine Translation. wangcongcong123/ttt reports BLEU
         27.9 for t5-base, and cites 28.0 of Raffel et al. 2020. Truncation never cuts the prefix, which is T5's.
"""

from collections.abc import Mapping

from t5prep.errors import Reject
from t5prep.reading.rows import Record, text
from t5prep.tasks.example import Example, Protected
from t5prep.tasks.task import Columns, Corpus, NoOptions, Task

PREFIX = "translate English to Romanian: "


def to_inputs(record: Record, options: NoOptions) -> Example:
    """Return an English sentence with the prefix. Raises Reject if it is empty."""
    if not (source := _side(record, "en", "source")):
        raise Reject("empty source")
    return Example(id=None, inputs=(Protected(PREFIX), source), targets="")


def to_example(record: Record, options: NoOptions) -> Example:
    """Return a pair of sentences. Raises Reject if one of them is empty."""
    input_example = to_inputs(record, options)
    if not (target := _side(record, "ro", "target")):
        raise Reject("empty target")
    return Example(id=None, inputs=input_example.inputs, targets=target)


def _side(record: Record, language: str, side: str) -> str:
    """Return the text of `language` in the pair of a row, or of its column `side`; "" if it is missing.

    Raises Reject if the column `translation` holds no pair.
    """
    pair = record.get("translation") or record
    if not isinstance(pair, Mapping):
        raise Reject("no pair: the column translation holds no en and ro")
    return text(pair, language, side, "").strip()


TASK = Task(
    to_example=to_example,
    to_inputs=to_inputs,
    columns=Columns(inputs=(("translation", "en", "source"),), targets=(("translation", "ro", "target"),)),
    corpus=Corpus(
        source="hf:wmt/wmt16#ro-en",
        files=("*.parquet", "*.jsonl", "*.json", "*.source", "*.target", "*.en", "*.ro"),
        pairs=((".source", ".target"), (".en", ".ro")),
        licence="unknown, says the card of wmt/wmt16 on the Hub",
        citation="Bojar et al. 2016, Findings of the 2016 Conference on Machine Translation, "
        "https://aclanthology.org/W16-2301",
    ),
    input_length=128,
    target_length=128,
    metrics=("bleu",),
)
