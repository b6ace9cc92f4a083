"""Plain text → masked tokens, the pre-training of BERT.

Documents are concatenated and cut into full rows.

Source   Any text, as for span_corruption. The tokenizer is an encoder's, which has a [MASK] or <mask>.
Example  [CLS] the film is gorgeous and sad [SEP] → [CLS] the [MASK] is gorgeous and happy [SEP], with the targets film and sad
Paper    Devlin et al. 2019: 15 % of the tokens are hidden; of these 80 % become the mask, 10 % another token, 10 % stay.
         RoBERTa hides 15 % too, ModernBERT 30 % (--rate 0.3), and both hide different tokens in each epoch. Here the hidden
         tokens of a row are the same in each epoch. To vary them, prepare with several --seed and mix the datasets.
"""

import dataclasses

from t5prep.options.fields import option
from t5prep.tasks.corpora import span_corruption
from t5prep.tasks.task import Corpus, Masks


@dataclasses.dataclass(frozen=True)
class Options(span_corruption.TextOptions):
    """The columns, and the share of tokens that are hidden."""

    rate: float = option(0.15, "share of tokens to mask")


TASK = dataclasses.replace(
    span_corruption.TASK,
    options=Options,
    corpus=Corpus(
        format="text",
        citation="Devlin et al. 2019, BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding",
    ),
    target_length=512,
    spans=lambda options: Masks(options.rate),
)
