"""Stack Overflow questions → none, low or high: the quality class of Annamoradnejad et al. 2022.

Source   Kaggle imoore/60k-stack-overflow-questions-with-quality-rate: train.csv (45,000 rows), valid.csv (15,000).
Example  quality: <title> EOS <body> → high
Paper    The fine-tuning tutorial pedro-r-marques/tutorial-t5-fine-tune: t5-base reaches 0.9364 on valid.csv.

The title and the body are joined by the EOS token. A document of more than 512 tokens keeps its first 255 and last 256,
with `<extra_id_1>` between them. HTML is kept by default because the tutorial trains and scores on it. But questions of
the class LQ_EDIT are reported to have no markup, and then a model can predict their label from a missing `<p>`. Prepare
with `--html strip` for a model that must use the questions' text (and expect a lower score than the tutorial's).
"""

import dataclasses
import functools

from t5prep.errors import Reject, UsageError
from t5prep.reading.rows import Record, text
from t5prep.tasks.example import EOS, Example
from t5prep.tasks.html import strip_html
from t5prep.tasks.labels import find
from t5prep.tasks.options import option
from t5prep.tasks.task import Columns, ColumnText, Corpus, Task, Template, TemplatePart


@dataclasses.dataclass(frozen=True)
class Options:
    """The choices in which the user may differ from the tutorial."""

    html: str = option(
        "keep",
        "keep the markup of bodies, as the tutorial does, or strip it",
        choices=("keep", "strip"),
        removes_markup="strip",
    )
    labels: str = option("LQ_CLOSE=none,LQ_EDIT=low,HQ=high", "which word stands for which value of Y")


def to_inputs(record: Record, options: Options) -> Example:
    """Return one question without its label. Raises Reject for an empty one."""
    title, body = text(record, "Title"), text(record, "Body")
    if not title.strip() and not body.strip():
        raise Reject("empty text: neither title nor body")
    if options.html == "strip":
        body = strip_html(body)
    id = record.get("Id")
    return Example(id=None if id in (None, "") else str(id), inputs=(f"quality: {title}", EOS, body), targets="")


def to_example(record: Record, options: Options) -> Example:
    """Return one question with its label. Raises Reject for one without a text, a known label or an id."""
    asked = to_inputs(record, options)
    words = _words(options.labels)
    label = text(record, "Y")
    if (word := find(label, words)) is None:
        raise Reject(
            f"unknown label: {record['Y']!r} is not one of {', '.join(words)}; say which word it is: --labels {label}=WORD"
        )
    if record["Id"] in (None, ""):
        raise Reject("empty id")
    return Example(id=asked.id, inputs=asked.inputs, targets=word)


def template(options: Options) -> Template | None:
    """Return the same example as columns; None if bodies must be parsed."""
    if options.html == "strip":
        return None
    inputs = (TemplatePart(("quality: ", ColumnText("Title"))), EOS, TemplatePart((ColumnText("Body"),)))
    return Template(inputs, target=(ColumnText("Y"),), labels=_words(options.labels), id="Id")


@functools.cache
def _words(labels: str) -> dict[str, str]:
    pairs = [item.partition("=") for item in labels.split(",")]
    if not all(label and word for label, _, word in pairs):
        raise UsageError(f'--labels "{labels}" is not a list of label=word. Write it like this: HQ=high,LQ=low')
    return {label.strip(): word.strip() for label, _, word in pairs}


TASK = Task(
    to_example=to_example,
    template=template,
    to_inputs=to_inputs,
    columns=Columns(inputs=("Title", "Body"), targets=("Y",), id="Id"),
    options=Options,
    corpus=Corpus(
        source="kaggle:imoore/60k-stack-overflow-questions-with-quality-rate",
        files=("*.csv",),
        licence="reported inconsistently (CC BY-SA, Apache-2.0, MIT): see Kaggle",
        citation="Annamoradnejad et al. 2022, Multi-View Approach to Suggest Moderation Actions in Community Question "
        "Answering Sites",
    ),
    input_length=512,
    target_length=2,
    metrics=("classification",),
    classes=lambda options: tuple(_words(options.labels).values()),
)
