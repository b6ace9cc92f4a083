"""Training a tokenizer against raw SentencePiece training on the same lines, in one run, as a ratio of times.

    python -m tests.benchmarks.bench_tokenizer [--megabytes 10] [--vocab-size 8000]

Ours reads the corpus through the pipeline, drops lines that stand twice, draws by hash, trains, and writes what
AutoTokenizer loads; the reference is handed the file. Each is a process of its own, its imports and all.
"""

import argparse
import random
import statistics
import sys
import tempfile
from pathlib import Path

from tests.benchmarks import bench_prepare

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
