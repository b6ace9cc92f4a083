"""Stack Overflow questions → quality: none, low or high.

The quality classes are those of Annamoradnejad et al. 2022.

Source   Kaggle imoore/60k-stack-overflow-questions-with-quality-rate: train.csv (45,000 rows), valid.csv (15,000).
Example  quality: <title> EOS <body> → high
Paper    The fine-tuning tutorial pedro-r-marques/tutorial-t5-fine-tune: t5-base reaches 0.9364 on valid.csv.

The title and the body are joined by the EOS token. A document of more than 512 tokens keeps its first 255 and last 256
tokens, with `<extra_id_1>` between them. HTML is kept by default, because the tutorial trains and scores on it. But questions
of the class LQ_EDIT are reported to have no markup, so a model can predict their label from a missing `<p>`. With
`--html strip` a model must use the text of questions (and scores lower than the tutorial's).
"""

import dataclasses
import functools

from t5prep.errors import UsageError
from t5prep.options.fields import option
from t5prep.tasks.example import EOS
from t5prep.tasks.html import strip_html
from t5prep.tasks.task import Columns, ColumnText, Corpus, Task, Template, TemplatePart


@dataclasses.dataclass(frozen=True)
class Options:
    """The choices that the tutorial does not offer."""

    html: str = option(
        "keep",
        "keep the HTML markup of the bodies, or strip it",
        choices=("keep", "strip"),
        removes_markup="strip",
    )
    labels: str = option("LQ_CLOSE=none,LQ_EDIT=low,HQ=high", "words for the values of Y")


def template(options: Options) -> Template:
    """Return the template of a question with its label."""
    body = ColumnText("Body", change=strip_html if options.html == "strip" else None)
    return Template(
        (TemplatePart(("quality: ", ColumnText("Title"))), EOS, TemplatePart((body,))),
        target=(ColumnText("Y"),),
        labels=_words(options.labels),
        id="Id",
        empty="empty text: neither title nor body",
        advice="; say which word it is: --labels {}=WORD",
    )


@functools.cache
def _words(labels: str) -> dict[str, str]:
    """Return the word of each label, from the option `--labels`. Raises UsageError.

    >>> _words("HQ=high, LQ=low")
    {'HQ': 'high', 'LQ': 'low'}
    """
    pairs = [item.partition("=") for item in labels.split(",")]
    if not all(label and word for label, _, word in pairs):
        raise UsageError(
            f'--labels "{labels}" is not a list of label=word. Write it like this: HQ=high,LQ=low',
            code="option.malformed",
        )
    return {label.strip(): word.strip() for label, _, word in pairs}


TASK = Task.of_template(
    template,
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
