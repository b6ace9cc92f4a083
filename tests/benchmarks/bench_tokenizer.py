"""Tokenizing, and training a tokenizer, against raw SentencePiece on the same texts, in one run, as ratios.

    T5PREP_CORPORA=FOLDER python -m tests.benchmarks.bench_tokenizer [--megabytes 10] [--vocab-size 8000]

Tokenizing: one thread's CPU time for every block of a corpus, ours as Arrow columns and cold, without one word learnt
before; the corpora are those of open_corpora, else a thousand questions. The least of some rounds counts, so that other
work of the machine is not measured.

Training: ours reads the corpus through the pipeline, drops lines that stand twice, draws by hash, trains, and writes what
AutoTokenizer loads; the reference is handed the file. Each is a process of its own, its imports and all.
"""

import argparse
import functools
import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import sentencepiece

from t5prep.tokens.tokenizer import BlockEncoder
from tests.benchmarks import bench_prepare, open_corpora

RAW = """
import sys
import sentencepiece
sentencepiece.SentencePieceTrainer.train(
    input=sys.argv[1], model_prefix=sys.argv[2], vocab_size=int(sys.argv[3]), model_type="unigram",
    character_coverage=0.9995, normalization_rule_name="nmt_nfkc", pad_id=0, eos_id=1, unk_id=2, bos_id=-1,
    num_threads=16, minloglevel=2,
)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=10)
    parser.add_argument("--vocab-size", type=int, default=8000)
    parser.add_argument("--pairs", type=int, default=3)
    given = parser.parse_args()
    for name in open_corpora.NAMES if open_corpora.folder() else ("questions",):
        _encoding(name, rounds=given.pairs)
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus.txt"
        corpus.write_text(_lines(given.megabytes * 1_000_000))
        size = str(given.vocab_size)
        ours = [sys.executable, "-m", "t5prep.cli", "tokenizer", "train", "--source", str(corpus), "--vocab-size", size]
        raw = [sys.executable, "-c", RAW, str(corpus), f"{folder}/raw", size]
        timed = bench_prepare.timed
        ratios = [timed([*ours, "--out", f"{folder}/ours-{number}"]) / timed(raw) for number in range(given.pairs)]
    shown = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    print(
        f"Training a tokenizer of {given.vocab_size:,} pieces on {given.megabytes} MB takes "
        f"{statistics.median(ratios):.2f} times as long as SentencePiece alone  ({shown})"
    )


def _encoding(name: str, *, rounds: int) -> None:
    """Print how fast one corpus is tokenized."""
    rows, path = bench_prepare.questions()
    texts = [row["Body"] for row in rows] if name == "questions" else open_corpora.texts(name)
    model = path.read_bytes()
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    blocks = [texts[at : at + 1000] for at in range(0, len(texts), 1000)]
    columns = [pa.array(block, pa.large_string()) for block in blocks]
    ours, raw = [math.inf] * len(blocks), [math.inf] * len(blocks)
    for _ in range(rounds):
        encoder = BlockEncoder(model, processor)
        for i, (column, block) in enumerate(zip(columns, blocks, strict=True)):
            ours[i] = min(ours[i], _cpu(functools.partial(encoder.encode, column)))
            raw[i] = min(raw[i], _cpu(functools.partial(processor.encode, block, return_type="numpy", num_threads=1)))
    size = sum(len(text.encode()) for text in texts)
    print(
        f"Tokenizing {name}, {size / 1e6:.0f} MB, on one core, cold: {sum(raw) / sum(ours):.2f} times as fast as "
        f"SentencePiece alone  ({size / 1e6 / sum(ours):.0f} MB/s{'; ' + encoder.slow if encoder.slow else ''})",
        flush=True,
    )


def _cpu(work: Callable[[], object]) -> float:
    """Return the CPU seconds that this process takes for some work."""
    began = time.process_time()
    work()
    return time.process_time() - began


def _lines(size: int) -> str:
    """Lines of so much text, all different: words of real questions, drawn anew."""
    rows, _ = bench_prepare.questions()
    words = " ".join(row["Body"] for row in rows).split()
    chooser = random.Random(0)
    lines: list[str] = []
    total = 0
    while total < size:
        line = " ".join(chooser.choices(words, k=20))
        lines.append(line)
        total += len(line.encode()) + 1
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
