"""Train `spiece.model` on the sample's own text with SentencePiece, with T5's conventions.

Run `python -m t5prep.sources.sample.build_tokenizer` to train it again after the generator has changed.
"""

import io
from collections.abc import Iterator

from t5prep.sources.sample import generate, tokenizer_path

# The sample and three times as many questions of the same kind, so that words get more pieces than dates of one log.
ROWS = 16_000
PIECES = 8_000

# The words of the so_quality task: its prefix, and its classes, each of which must be one piece. Each occurs in two
# contexts, because SentencePiece's candidates must occur in two different space-separated words.
TASK_WORDS = ("quality: none", "quality: low", "quality: high", "quality, none, low, high")


def training_lines() -> Iterator[str]:
    """Yield every line of titles and bodies, and the task's words so often that each becomes a piece."""
    for _, title, body, *_ in generate(rows=ROWS, seed=0):
        yield from (line for line in (title, *body.splitlines()) if line.strip())
    yield from TASK_WORDS * (ROWS // 4)


def train() -> bytes:
    """Return the serialized SentencePiece model: pad 0, EOS 1, unknown 2, no BOS; sentinels are above its pieces."""
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=training_lines(),
        model_writer=model,
        model_type="unigram",
        vocab_size=PIECES,
        character_coverage=0.9999,
        normalization_rule_name="nmt_nfkc",
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        pad_piece="<pad>",
        eos_piece="</s>",
        unk_piece="<unk>",
        num_threads=1,
        minloglevel=1,
    )
    return model.getvalue()


if __name__ == "__main__":
    tokenizer_path().write_bytes(train())
