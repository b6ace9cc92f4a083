"""Known near-duplicates of real texts: how many are found, and what that costs.

Run: python tests/benchmarks/bench_near_duplicates.py TEXT... (files of text; each of 10,000 pieces is an original)
"""

import random
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from near_search import BANDS, search, sketches_of

from t5prep.prepare.near_duplicates import jaccard
from t5prep.prepare.near_duplicates.shingles import shingles

ORIGINALS, COPIES = 10_000, 3_000
WORDS = (40, 250)


def originals(text: str, drawn: random.Random) -> list[str]:
    """Return pieces of a text, each of some dozens to hundreds of words; used up, it begins anew with its words in another order."""
    words, pieces, at = text.split(), [], 0
    while len(pieces) < ORIGINALS:
        size = drawn.randint(*WORDS)
        if at + size > len(words):
            drawn.shuffle(words)
            at = 0
        pieces.append(" ".join(words[at : at + size]))
        at += size
    return pieces


def edited(text: str, drawn: random.Random, vocabulary: list[str]) -> str:
    """Return a text with 1–30 % of its words replaced (alone or side by side), or with its sentences in another order."""
    words = text.split()
    if drawn.random() < 0.2:
        parts = [part for part in text.split(" . ") if part]
        drawn.shuffle(parts)
        return " . ".join(parts)
    count = max(1, round(len(words) * drawn.uniform(0.01, 0.3)))
    if drawn.random() < 0.5:
        at = drawn.randrange(len(words) - count + 1)
        places = list(range(at, at + count))
    else:
        places = drawn.sample(range(len(words)), count)
    for place in places:
        words[place] = drawn.choice(vocabulary)
    return " ".join(words)


def main(paths: list[str]) -> None:
    """Print recall by similarity, precision and seconds."""
    drawn = random.Random(0)
    text = " ".join(Path(path).read_text(errors="replace") for path in paths)
    vocabulary = sorted(set(text.split()))
    texts = originals(text, drawn)
    chosen = drawn.sample(range(ORIGINALS), COPIES)
    copies = [edited(texts[i], drawn, vocabulary) for i in chosen]
    rows = [(f"o{i}", one) for i, one in enumerate(texts)] + [(f"c{i}", one) for i, one in enumerate(copies)]
    drawn.shuffle(rows)
    began = time.perf_counter()
    sketches = sketches_of(rows, block=2000)
    sketched = time.perf_counter()
    found = search(sketches)
    seconds = time.perf_counter() - sketched
    size = sum(len(one) for _, one in rows) / 1e6
    print(f"{len(rows):,} rows, {size:.1f} MB, {BANDS}: sketches {sketched - began:.1f} s, search {seconds:.1f} s")
    every = {id: n for n, (id, _) in enumerate(rows)}
    truth = jaccard.sets(shingles([one for _, one in rows], words=5))
    pairs = np.array([(every[f"o{i}"], every[f"c{n}"]) for n, i in enumerate(chosen)])
    alike = jaccard.similarity(truth, pairs)
    parent = {row["row"] - 1: every[row["kept_id"]] for row in found.dropped.to_pylist()}
    together = np.array([parent.get(a, a) == parent.get(b, b) for a, b in pairs.tolist()])
    for low, high in ((0, 0.5), (0.5, 0.7), (0.7, 0.75), (0.75, 0.8), (0.8, 0.85), (0.85, 0.9), (0.9, 1.01)):
        own = (alike >= low) & (alike < high)
        print(f"  Jaccard {low:.2f}–{min(high, 1):.2f}: {own.sum():5} pairs, found {together[own].mean():.4f}")
    print(f"  Jaccard >= 0.85: found {together[alike >= 0.85].mean():.4f}")
    print(
        f"dropped {len(found.dropped):,} rows in {found.clusters:,} clusters; the largest {[c.rows for c in found.largest]}"
    )
    kept = np.array([(every[row["kept_id"]], row["row"] - 1) for row in found.dropped.to_pylist()])
    direct = jaccard.similarity(truth, kept)
    print(
        f"of the dropped {(direct >= 0.8).mean():.4f} are at least 0.8 like the kept row, the least {direct.min():.3f}"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
