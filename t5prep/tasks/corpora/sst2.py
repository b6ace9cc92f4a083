"""Sentences of film reviews → negative or positive: SST-2 as in GLUE.

Source   The Hub's nyu-mll/glue, config sst2: 67,349 / 872 sentences (its test split has no labels, so its
         rows are rejected).
         GLUE's own TSV (sentence, label) and the JSON lines of wangcongcong123/ttt (text, and the label as a word) are
         read too.
Example  it 's a charming and often affecting journey . → positive
Paper    Socher et al. 2013, Recursive Deep Models for Semantic Compositionality Over a Sentiment Treebank.
         wangcongcong123/ttt reports 0.9012 for t5-small and 0.9418 for t5-base (its README). Like it, this task has no
         prefix.
"""

from t5prep.errors import Reject
from t5prep.reading.rows import Record, text
from t5prep.tasks.example import Example
from t5prep.tasks.labels import find
from t5prep.tasks.task import Columns, ColumnText, Corpus, NoOptions, Task, Template, TemplatePart

CLASSES = ("negative", "positive")
# The word of each label as GLUE has it, and as others do.
_WORDS = {**{str(number): word for number, word in enumerate(CLASSES)}, **{word: word for word in CLASSES}}


def to_inputs(record: Record, options: NoOptions) -> Example:
    """Return one sentence without its label. Raises Reject for an empty one."""
    sentence = text(record, "sentence", "text", "").strip()
    if not sentence:
        raise Reject("empty text")
    # GLUE's idx begins at 0 in each split, so the id is the row's position.
    return Example(id=None, inputs=sentence, targets="")


def to_example(record: Record, options: NoOptions) -> Example:
    """Return one sentence with its label: a word, or GLUE's number, 0, 1, or −1 if it is hidden. Raises Reject."""
    asked = to_inputs(record, options)
    label = text(record, "label").strip().lower()
    if label == "-1":
        raise Reject("hidden label: -1, as in GLUE's test split")
    if (word := find(label, _WORDS)) is None:
        raise Reject(f"unknown label: {record['label']!r} is not one of 0, 1, negative, positive")
    return Example(id=None, inputs=asked.inputs, targets=word)


def template(options: NoOptions) -> Template:
    """Return the same example as columns."""
    return Template(
        (TemplatePart((ColumnText("sentence", stripped=True),)),), target=(ColumnText("label"),), labels=_WORDS
    )


TASK = Task(
    to_example=to_example,
    template=template,
    to_inputs=to_inputs,
    columns=Columns(inputs=(("sentence", "text"),), targets=("label",)),
    corpus=Corpus(
        source="hf:nyu-mll/glue#sst2",
        files=("*.parquet", "*.tsv", "*.jsonl", "*.json"),
        licence="unknown, says the card of stanfordnlp/sst2 on the Hub",
        citation="Socher et al. 2013, Recursive Deep Models for Semantic Compositionality Over a Sentiment Treebank, "
        "https://aclanthology.org/D13-1170",
    ),
    input_length=128,
    target_length=4,
    metrics=("classification",),
    classes=CLASSES,
)
