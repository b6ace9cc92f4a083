"""Film reviews → negative or positive: SST-2 of GLUE.

Source   The Hub's nyu-mll/glue, config sst2: 67,349 / 872 sentences (its test split has no labels, so its
         rows are rejected).
         GLUE's own TSV (sentence, label) and the JSON lines of wangcongcong123/ttt (text, and the label as a word) are
         read too.
Example  it 's a charming and often affecting journey . → positive
Paper    Socher et al. 2013, Recursive Deep Models for Semantic Compositionality Over a Sentiment Treebank.
         wangcongcong123/ttt reports 0.9012 for t5-small and 0.9418 for t5-base (its README). Like it, this task has no
         prefix.
"""

from t5prep.tasks.task import Columns, ColumnText, Corpus, NoOptions, Task, Template, TemplatePart

CLASSES = ("negative", "positive")
# GLUE's value of a label, or the word itself as in other editions → the word.
_WORDS = {**{str(number): word for number, word in enumerate(CLASSES)}, **{word: word for word in CLASSES}}


def template(options: NoOptions) -> Template:
    """Return the template of a sentence with its label.

    It has no id column, because GLUE's idx begins at 0 in each split. The id is the row's position.
    """
    return Template(
        (TemplatePart((ColumnText("sentence", ("text", ""), change=str.strip),)),),
        target=(ColumnText("label", change=str.lower),),
        labels=_WORDS,
        empty="empty text",
        hidden={"-1": "hidden label: -1, as in GLUE's test split"},
    )


TASK = Task.of_template(
    template,
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
