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
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import sentencepiece

from t5prep.tokens.tokenizer import BlockEncoder
from tests.benchmarks import bench_prepare, open_corpora, processor_time
from tests.benchmarks.processor_time import Line, Seconds

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
    processor_time.show(lines(pairs=given.pairs, megabytes=given.megabytes, vocab_size=given.vocab_size))


def lines(*, pairs: int = 1, megabytes: int = 10, vocab_size: int = 8000) -> Iterator[Line]:
    """Yield a line for each corpus that is tokenized, and one for training."""
    for name in open_corpora.NAMES if open_corpora.folder() else ("questions",):
        yield _encoding(name, rounds=pairs)
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus.txt"
        corpus.write_text(_lines(megabytes * 1_000_000))
        cli = [sys.executable, "-m", "t5prep.cli", "tokenizer", "train", "--source", corpus, "--vocab-size", vocab_size]
        raw = [sys.executable, "-c", RAW, corpus, f"{folder}/raw", vocab_size]
        took = processor_time.of_command
        rounds = [(took([*cli, "--out", f"{folder}/ours-{number}"]), took(raw)) for number in range(pairs)]
    yield Line(f"training a tokenizer of {vocab_size:,} pieces on {megabytes} MB", "SentencePiece's trainer", rounds)


def _encoding(name: str, *, rounds: int) -> Line:
    """Return how fast one corpus is tokenized: of each block the least of some rounds."""
    rows, path = bench_prepare.questions()
    texts = [row["Body"] for row in rows] if name == "questions" else open_corpora.texts(name)
    model = path.read_bytes()
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    blocks = [texts[at : at + 1000] for at in range(0, len(texts), 1000)]
    columns = [pa.array(block, pa.large_string()) for block in blocks]
    never = Seconds(math.inf, math.inf)
    ours, raw = [never] * len(blocks), [never] * len(blocks)
    for _ in range(rounds):
        encoder = BlockEncoder(model, processor)
        for i, (column, block) in enumerate(zip(columns, blocks, strict=True)):
            encode = functools.partial(processor.encode, block, return_type="numpy", num_threads=1)
            ours[i] = min(ours[i], processor_time.of_call(functools.partial(encoder.encode, column)))
            raw[i] = min(raw[i], processor_time.of_call(encode))
    size = sum(len(text.encode()) for text in texts)
    both = (Seconds(*map(sum, zip(*side, strict=True))) for side in (ours, raw))
    return Line(f"tokenizing {name}, {size / 1e6:.0f} MB, one core, cold", "SentencePiece alone", [tuple(both)])


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
