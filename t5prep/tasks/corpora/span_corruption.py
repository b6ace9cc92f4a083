"""Plain text → masked spans, the pre-training of T5.

Documents are concatenated and cut into full rows.

Source   Any text: the Hub's allenai/c4, gsarti/clean_mc4_it; files of lines; JSON lines or Parquet with a column of it.
Example  Thank you <extra_id_0> me to your party <extra_id_1> week. → <extra_id_0> for inviting <extra_id_1> last
Paper    Raffel et al. 2020 (corrupting spans), and gsarti/t5-flax-gcp, which drops the remaining tokens of every 200
         documents and numbers its sentinels upwards. Here only the last row of a shard is shorter than the others.

For an input of 512 tokens, 85 of 568 tokens are hidden in 28 spans, and the target has 114 tokens. Each document in a row keeps
its EOS. The hidden spans depend only on the seed and the row's name, `document@offset`.
"""

import dataclasses

from t5prep.options.fields import option
from t5prep.tasks.task import Columns, ColumnText, Corpus, Spans, Task, Template, TemplatePart


@dataclasses.dataclass(frozen=True)
class TextOptions:
    """The columns of the text and its id."""

    text_column: str = option("text", "column with the text")
    id_column: str = option("", "column with a unique id [default: FILE:ROW]")


@dataclasses.dataclass(frozen=True)
class Options(TextOptions):
    """The columns, and the share of the text that is hidden."""

    density: float = option(0.15, "share of tokens to mask")
    mean_span: float = option(3.0, "mean length of a masked span in tokens")


def template(options: TextOptions) -> Template:
    """Return the template of a document. Its hidden spans are drawn later, when documents have been cut into rows."""
    return Template((TemplatePart((ColumnText(options.text_column),)),), id=options.id_column, empty="empty text")


TASK = Task.of_template(
    template,
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
