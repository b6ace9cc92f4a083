"""Plain text → text with hidden spans, T5's pretraining: documents end to end, in rows that are always full.

Source   Any text: the Hub's allenai/c4, gsarti/clean_mc4_it; files of lines; JSON lines or Parquet with a column of it.
Example  Thank you <extra_id_0> me to your party <extra_id_1> week. → <extra_id_0> for inviting <extra_id_1> last
Paper    Raffel et al. 2020 (corrupting spans), and gsarti/t5-flax-gcp, which drops the remaining tokens of every 200
         documents and numbers its sentinels upwards. Here only the last row of a shard is shorter than the others.

An input of 512 tokens hides 85 of 568 tokens in 28 spans, and its target has 114. Documents keep their EOS inside the
row. The hidden spans depend only on the seed and the row's name, `document@offset`.
"""

import dataclasses

from t5prep.errors import Reject
from t5prep.reading.rows import Record, text
from t5prep.tasks.example import Example
from t5prep.tasks.options import option
from t5prep.tasks.task import Columns, ColumnText, Corpus, Spans, Task, Template, TemplatePart


@dataclasses.dataclass(frozen=True)
class TextOptions:
    """The columns of the text and its id."""

    text_column: str = option("text", "the column with the text")
    id_column: str = option("", "a column with a unique id; without it, the row's place in its file is the id")


@dataclasses.dataclass(frozen=True)
class Options(TextOptions):
    """The columns, and how much of the text is hidden."""

    density: float = option(0.15, "the share of tokens that is hidden")
    mean_span: float = option(3.0, "how many tokens a hidden span has on average")


def to_example(record: Record, options: TextOptions) -> Example:
    """Return one document. Its hidden spans are drawn later, when documents have been cut into rows."""
    document = text(record, options.text_column)
    if not document.strip():
        raise Reject("empty text")
    id = text(record, options.id_column) if options.id_column else None
    if id == "":
        raise Reject("empty id")
    return Example(id=id, inputs=document, targets="")


def template(options: TextOptions) -> Template:
    """Return the same example as columns."""
    return Template((TemplatePart((ColumnText(options.text_column),)),), id=options.id_column)


TASK = Task(
    to_example=to_example,
    template=template,
    columns=lambda options: Columns(inputs=(options.text_column,), id=options.id_column),
    options=Options,
    corpus=Corpus(
        format="text",
        citation="Raffel et al. 2020, Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer",
    ),
    input_length=512,
    target_length=114,
    metrics=("token_accuracy", "perplexity"),
    spans=lambda options: Spans(options.density, options.mean_span),
)
