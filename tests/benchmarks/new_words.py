"""Text that does not repeat, of any size: the corpora of open_corpora again and again, each time in other words.

    python -m tests.benchmarks.new_words CORPORA OUT COPIES      186 MB of text, and one Parquet file (zstd), for each copy

Of the 8,192 most frequent words each becomes another one of like frequency (within 64 ranks), and each rarer one is made of
syllables, at most 16 letters; what stands between words stays. A seed for each copy and corpus says which.
"""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

CORPORA = ("en_docs", "en_short")
FREQUENT, WINDOW = 8_192, 64
_TOKEN = re.compile(r"[^\W\d_]+|[\W\d_]+")
_SYLLABLES = np.array([consonant + vowel for consonant in "bcdfghklmnprstvz" for vowel in "aeiou"])


class Words:
    """Hold a corpus as numbers of words, most frequent first, so that a copy in other words is one look-up of all."""

    def __init__(self, path: Path) -> None:
        numbers: dict[str, int] = {}
        texts = []
        for line in path.read_text(encoding="utf-8").splitlines():
            tokens = _TOKEN.findall(json.loads(line)["text"])
            texts.append(np.array([numbers.setdefault(token, len(numbers)) for token in tokens], np.uint32))
        self.ends = np.cumsum([len(text) for text in texts])
        tokens = np.concatenate(texts)
        order = np.argsort(-np.bincount(tokens), kind="stable")
        rank = np.empty(len(order), np.uint32)
        rank[order] = np.arange(len(order), dtype=np.uint32)
        self.tokens = rank[tokens]
        words = list(numbers)
        self.words = np.array([words[number] for number in order], object)
        self.is_word = np.array([word[0].isalpha() for word in self.words])

    def copy(self, seed: int) -> pa.Array:
        """Return the texts in other words."""
        generator = np.random.default_rng(seed)
        words = self.words.copy()
        places = np.flatnonzero(self.is_word)
        frequent = places[:FREQUENT]
        for begin in range(0, len(frequent), WINDOW):
            window = frequent[begin : begin + WINDOW]
            words[window] = words[generator.permutation(window)]
        rare = places[FREQUENT:]
        syllables = "".join(_SYLLABLES[generator.integers(0, len(_SYLLABLES), len(rare) * 8)])
        for number, word_index in enumerate(rare):
            new_word = syllables[16 * number : 16 * number + len(words[word_index])]
            words[word_index] = new_word.capitalize() if words[word_index][0].isupper() else new_word
        word_array = pa.array(words, pa.string())
        sizes = np.array([len(word.encode()) for word in words])
        ends = np.cumsum(sizes[self.tokens])[self.ends - 1]
        text = word_array.take(pa.array(self.tokens))
        offsets = np.concatenate([[0], ends]).astype(np.int32)
        return pa.StringArray.from_buffers(len(ends), pa.py_buffer(offsets), text.buffers()[2])


def main() -> None:
    """Write so many copies."""
    out, copies = Path(sys.argv[2]), int(sys.argv[3])
    out.mkdir(parents=True, exist_ok=True)
    corpora = [Words(Path(sys.argv[1]) / f"{name}.jsonl") for name in CORPORA]
    for copy in range(copies):
        texts = pa.chunked_array(
            [words.copy(copy * len(CORPORA) + corpus_index) for corpus_index, words in enumerate(corpora)]
        )
        ids = pa.array([f"{copy}-{row}" for row in range(len(texts))])
        pq.write_table(pa.table({"id": ids, "text": texts}), out / f"copy-{copy:04d}.parquet", compression="zstd")


if __name__ == "__main__":
    main()
