"""Romanian without diacritics → the same text with them.

Source   The Hub's dumitrescustefan/diacritic (column `text`); any file of Romanian lines.
Example  Soarele rasare in tara. → Soarele răsare în țară.
Model    iliemihai/t5x_diacritics transliterates all characters of its inputs (also quotes, dashes, Cyrillic), so its
         model must guess more than diacritics. Here only ă â î ș ț change.

Targets are composed (NFC), and the cedilla forms ş ţ of old keyboards become the comma-below ș ț of correct Romanian. So the
same word always has the same tokens. A text that is too long is split at the ends of sentences, or between words, with the
same words in the input and the target. A cut would keep different words of the two. `predict` splits texts in the same way.
`--long cut` cuts them, as the original does, and `--long reject` leaves them out.
"""

import dataclasses
import unicodedata

from t5prep.errors import Reject
from t5prep.reading.rows import Record, text
from t5prep.tasks.example import Example
from t5prep.tasks.task import Columns, Corpus, NoOptions, Task

_COMMA_BELOW = str.maketrans("şţŞŢ", "șțȘȚ")
_PLAIN = str.maketrans("ăâîșțĂÂÎȘȚ", "aaistAAIST")


def with_commas(text: str) -> str:
    """Return Romanian text in today's spelling: composed letters, with commas below.

    >>> with_commas("Ţară, şi")
    'Țară, și'
    """
    return unicodedata.normalize("NFC", text).translate(_COMMA_BELOW)


def without_diacritics(text: str) -> str:
    """Return the text without Romanian diacritics, as typed without a Romanian keyboard. Other characters do not change.

    >>> without_diacritics("„Țară” și café")
    '„Tara” si café'
    """
    return text.translate(_PLAIN)


def to_inputs(record: Record, options: NoOptions) -> Example:
    """Return a text without diacritics. Raises Reject if it is empty."""
    return dataclasses.replace(to_example(record, options), targets="")


def to_example(record: Record, options: NoOptions) -> Example:
    """Return a text without diacritics and the same text with them. Raises Reject if it is empty."""
    target = with_commas(text(record, "text")).strip()
    if not target:
        raise Reject("empty text")
    return Example(id=None, inputs=without_diacritics(target), targets=target)


TASK = Task(
    to_example=to_example,
    to_inputs=to_inputs,
    columns=Columns(inputs=("text",)),
    corpus=Corpus(
        source="hf:dumitrescustefan/diacritic",
        files=("*.parquet", "*.txt", "*.ro", "*.jsonl"),
        format="text",
        licence="not stated here: see the Hub",
        citation="Dumitrescu, dumitrescustefan/diacritic on the Hugging Face Hub",
    ),
    input_length=256,
    target_length=256,
    metrics=("diacritics",),
    never_cut=True,
)
