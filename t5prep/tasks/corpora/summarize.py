"""Articles → summaries: CNN/Daily Mail or XSum.

Source   The Hub's abisee/cnn_dailymail, config 3.0.0 (article, highlights, id); EdinburghNLP/xsum (document, summary).
Example  summarize: <article> → <highlights>
Paper    See et al. 2017, Get To The Point; Narayan et al. 2018, Don't Give Me the Details, Just the Summary! (arXiv
         1808.08745). The prefix is T5's own, and truncation never cuts it.
"""

from t5prep.errors import Reject
from t5prep.reading.rows import Record, text
from t5prep.tasks.example import Example, Protected
from t5prep.tasks.task import Columns, Corpus, NoOptions, Task

PREFIX = "summarize: "


def to_inputs(record: Record, options: NoOptions) -> Example:
    """Return an article with the prefix, without its summary. Raises Reject if it is empty."""
    article = text(record, "article", "document", "").strip()
    if not article:
        raise Reject("empty article")
    id = record.get("id")
    return Example(id=None if id in (None, "") else str(id), inputs=(Protected(PREFIX), article), targets="")


def to_example(record: Record, options: NoOptions) -> Example:
    """Return an article with its summary. Raises Reject if one of them is empty."""
    input_example = to_inputs(record, options)
    summary = text(record, "highlights", "summary", "").strip()
    if not summary:
        raise Reject("empty summary")
    return Example(id=input_example.id, inputs=input_example.inputs, targets=summary)


TASK = Task(
    to_example=to_example,
    to_inputs=to_inputs,
    columns=Columns(inputs=(("article", "document"),), targets=(("highlights", "summary"),), id=("id", "")),
    corpus=Corpus(
        source="hf:abisee/cnn_dailymail#3.0.0",
        files=("*.parquet", "*.jsonl", "*.json", "*.csv"),
        licence="none known (CNN/Daily Mail, says its page in the TensorFlow Datasets catalogue)",
        citation="See et al. 2017, Get To The Point: Summarization with Pointer-Generator Networks, "
        "https://aclanthology.org/P17-1099",
    ),
    input_length=512,
    target_length=128,
    metrics=("rouge",),
)
