"""Preparing for an encoder, end to end, against `tokenizers`' encode_batch of the same texts on all cores, as ratios.

    python -m tests.benchmarks.bench_encoders [--megabytes 30] [--pairs 3]

SST-2's phrases (GLUE's TSV) and paragraphs of prose, repeated, become finished shards in a process of its own, start of
Python and all, by word pieces (BERT's kind) and by byte-level BPE (RoBERTa's); the vocabularies are trained on these
texts first. The reference only calls `encode_batch` on the same texts, already in memory, in one process whose threads
use all cores: it reads nothing, places nothing and writes nothing.
"""

import argparse
import csv
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.bench_prepare import SHARED, timed

PIECES = 16_000
ROBERTA_SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
TASKS = {
    "sst2": ("sst2",),
    "text2text": (
        *("text2text", "--inputs-column", "sentence", "--targets-column", "label"),
        *("--label-map", "0=negative,1=positive"),
    ),
}
# The reference: the texts of a file are encoded in batches by the tokenizer of a folder; prints the seconds.
RAW = """
import csv, sys, time
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file(sys.argv[1])
with open(sys.argv[2], newline="") as file:
    texts = [row["sentence"].strip() for row in csv.DictReader(file, delimiter="\\t", quoting=csv.QUOTE_NONE)]
tokenizer.encode_batch(texts[:1000])
began = time.perf_counter()
for at in range(0, len(texts), 10_000):
    tokenizer.encode_batch(texts[at : at + 10_000])
print(time.perf_counter() - began)
"""


class Corpus(NamedTuple):
    """Name a corpus and the rows that are repeated: each a text and its label, 0 or 1."""

    name: str
    rows: list[tuple[str, str]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=30)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=TASKS)
    given = parser.parse_args()
    with open(SHARED / "sst2/train.tsv", newline="", encoding="utf-8") as file:
        read = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        phrases = [(row["sentence"], row["label"]) for row in read]
    prose = (SHARED / "english/wikitext2_valid.txt").read_text(encoding="utf-8").splitlines()
    paragraphs = [(" ".join(line.split()), f"{len(line) % 2}") for line in prose if len(line) > 200]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        texts = [text for text, _ in phrases + paragraphs]
        models = [_word_pieces(folder / "bert", texts), _bytes(folder / "roberta", texts)]
        for corpus in (Corpus("SST-2", phrases), Corpus("paragraphs", paragraphs)):
            path, size = _write(corpus, folder / "train.tsv", megabytes=given.megabytes)
            for model in models:
                for task in given.tasks:
                    ratios = []
                    for _ in range(given.pairs):
                        seconds = _ours(task, path, folder / "out", model)
                        ratios.append(_raw(path, model) / seconds)
                    shown = ", ".join(f"{ratio:.2f}" for ratio in ratios)
                    print(
                        f"{corpus.name:<11} {model.name:<8} {task:<10} {size / 1e6:4.0f} MB   speed / raw encode_batch: "
                        f"median {statistics.median(ratios):.2f}  ({shown})",
                        flush=True,
                    )


def _word_pieces(folder: Path, texts: Iterable[str]) -> Path:
    from tokenizers import BertWordPieceTokenizer
    from tokenizers.processors import BertProcessing

    made = BertWordPieceTokenizer(lowercase=True)
    made.train_from_iterator(texts, vocab_size=PIECES, show_progress=False)
    end, begin = ((word, made.token_to_id(word)) for word in ("[SEP]", "[CLS]"))
    made.post_processor = BertProcessing(end, begin)
    return _saved(folder, made)


def _bytes(folder: Path, texts: Iterable[str]) -> Path:
    from tokenizers import ByteLevelBPETokenizer
    from tokenizers.processors import RobertaProcessing

    made = ByteLevelBPETokenizer()
    made.train_from_iterator(texts, vocab_size=PIECES, special_tokens=ROBERTA_SPECIAL, show_progress=False)
    made.post_processor = RobertaProcessing(("</s>", 2), ("<s>", 0))
    return _saved(folder, made)


def _saved(folder: Path, made: object) -> Path:
    folder.mkdir()
    made.save(str(folder / "tokenizer.json"))  # type: ignore[attr-defined]
    (folder / "config.json").write_text(json.dumps({"model_type": folder.name}))
    return folder


def _write(corpus: Corpus, path: Path, *, megabytes: int) -> tuple[Path, int]:
    rows = "".join(f"{text}\t{label}\n" for text, label in corpus.rows)
    times = max(1, round(megabytes * 1_000_000 / len(rows.encode())))
    path.write_text("sentence\tlabel\n" + rows * times, encoding="utf-8")
    return path, path.stat().st_size


def _ours(task: str, corpus: Path, out: Path, model: Path) -> float:
    """Seconds to prepare a corpus with the command line."""
    subprocess.run(["rm", "-rf", out], check=True)
    command = [sys.executable, "-m", "t5prep.cli", "prepare", *TASKS[task], "--source", corpus, "--tokenizer", model]
    return timed([*map(str, command), "--out", str(out), "--fresh"])


def _raw(corpus: Path, model: Path) -> float:
    """Seconds to encode every text with `tokenizers` alone; loading texts and tokenizer does not count."""
    command = [sys.executable, "-c", RAW, str(model / "tokenizer.json"), str(corpus)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


if __name__ == "__main__":
    main()
