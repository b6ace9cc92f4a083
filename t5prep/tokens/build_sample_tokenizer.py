"""Train the sample's `spiece.model` on the sample's own text, with T5's conventions.

Run `python -m t5prep.tokens.build_sample_tokenizer` to make it again, after the generator has changed.
"""

from collections.abc import Iterator

from t5prep.sources.sample import generate, tokenizer_path
from t5prep.tokens import training

# The sample and three times as many questions of the same kind: words then win over the dates of one log.
ROWS = 16_000
PIECES = 8_000

# The words of the so_quality task: its prefix, and its classes, each of which must be one piece. Each stands in two
# surroundings, because SentencePiece takes for a candidate only what occurs in two different space-separated words.
TASK_WORDS = ("quality: none", "quality: low", "quality: high", "quality, none, low, high")


def training_lines() -> Iterator[str]:
    """Yield every line of titles and bodies, and the task's words often enough to be worth a piece each."""
    for _, title, body, *_ in generate(rows=ROWS, seed=0):
        yield from (line for line in (title, *body.splitlines()) if line.strip())
    yield from TASK_WORDS * (ROWS // 4)


def train() -> bytes:
    """Return the serialized SentencePiece model; the ids of the sentinels are above its pieces."""
    return training.unigram_model(training_lines(), vocab_size=PIECES, character_coverage=0.9999, num_threads=1)


if __name__ == "__main__":
    tokenizer_path().write_bytes(train())
