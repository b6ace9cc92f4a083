"""How `spiece.model` was made: SentencePiece on the sample's own text, with T5's conventions.

Run `python -m t5prep.sources.sample.build_tokenizer` to make it again, after the generator has changed.
"""

import io
from collections.abc import Iterator

from t5prep.sources.sample import generate, tokenizer_path

# The sample and three times as many questions of the same kind: words then win over the dates of one log.
ROWS = 16_000
PIECES = 8_000

# The words of the so_quality task: its prefix, and its classes, each of which must be one piece. Each stands in two
# surroundings, because SentencePiece takes for a candidate only what occurs in two different space-separated words.
TASK_WORDS = ("quality: none", "quality: low", "quality: high", "quality, none, low, high")


def training_lines() -> Iterator[str]:
    """Every line of titles and bodies, and the task's words often enough to be worth a piece each."""
    for _, title, body, *_ in generate(rows=ROWS, seed=0):
        yield from (line for line in (title, *body.splitlines()) if line.strip())
    yield from TASK_WORDS * (ROWS // 4)


def train() -> bytes:
    """The SentencePiece model, serialized. Pad 0, EOS 1, unknown 2, no BOS; the sentinels live above its pieces."""
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
