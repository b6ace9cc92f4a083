"""Preparing, end to end, against raw tokenizing of the same texts on all cores, in one run, as ratios.

    make bench                              about 200 MB, some minutes
    python -m tests.benchmarks.bench_prepare --megabytes 20
    PEER_PYTHON=peer/bin/python make bench  with `datasets` and TensorFlow in an environment of their own

Each row prepares a CSV on disk into finished shards in a process of its own, start of Python, import of Beam and all.
The reference only calls `SentencePieceProcessor.encode` on the same texts, already in memory, in as many processes as
there are cores: it reads nothing, places nothing and writes nothing. A ratio of 1 means that all the rest is free.
"""

import argparse
import csv
import multiprocessing
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from t5prep import sample

SHARED = Path(__file__).parents[3] / "shared" / "data"
PROSE = SHARED / "english/wikitext2_valid.txt"
PAIRS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    chosen = parser.parse_args()
    questions = SHARED / "stackoverflow/questions_cp1252.csv"
    model = SHARED / "t5_tokenizer/spiece.model"
    rows = _rows(questions, encoding="cp1252") if questions.exists() else _sample_rows()
    model = model if model.exists() else sample.tokenizer_path()
    print(f"{os.cpu_count()} cores, {model.name} of {model.parent.name}, {chosen.megabytes} MB, {chosen.pairs} pairs")
    with tempfile.TemporaryDirectory() as folder:
        corpora = [("questions as they are", rows, 1), ("documents of 8 questions", rows, 8)]
        if PROSE.exists():
            lines = [{"Title": "", "Body": line} for line in PROSE.read_text().splitlines() if len(line) > 200]
            corpora.append(("documents of 8 paragraphs", lines, 8))
        for what, texts, joined in corpora:
            corpus, size = _corpus(texts, Path(folder), megabytes=chosen.megabytes, joined=joined)
            ratios = []
            for _ in range(chosen.pairs):
                ours = _ours(corpus, Path(folder), model)
                raw = _raw(corpus, model)
                ratios.append(raw / ours)
            shown = ", ".join(f"{ratio:.2f}" for ratio in ratios)
            print(
                f"{what:<26} {size / 1e6:6.0f} MB   speed / raw sentencepiece: median {statistics.median(ratios):.2f}  ({shown})"
            )
            if (theirs := _datasets(corpus, model)) is not None:
                print(
                    f"{'':<26} {'':>9}   speed / datasets.map + fast tokenizer + tf.train.Example: {theirs / ours:.1f}"
                )
    bare = min(_timed([sys.executable, "-c", "pass"]) for _ in range(7))
    help_ = min(_timed([sys.executable, "-m", "t5prep", "--help"]) for _ in range(7))
    print(f"t5prep --help: {help_ / bare:.1f} times a bare `python -c pass`")


def _rows(path: Path, *, encoding: str) -> list[dict[str, str]]:
    csv.field_size_limit(sys.maxsize)
    with open(path, newline="", encoding=encoding) as file:
        return list(csv.DictReader(file))


def _sample_rows() -> list[dict[str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        return _rows(sample.write(Path(folder) / "questions.csv"), encoding="utf-8")


def _corpus(rows: list[dict[str, str]], folder: Path, *, megabytes: int, joined: int) -> tuple[Path, int]:
    """Rows repeated and shuffled, with ids of their own, as a UTF-8 CSV file of about so many megabytes."""
    chooser = random.Random(0)
    path = folder / f"joined{joined}.csv"
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("Id", "Title", "Body", "Y"))
        number = 0
        while file.tell() < megabytes * 1_000_000:
            for _ in range(200):
                picked = chooser.choices(rows, k=joined)
                number += 1
                writer.writerow((number, picked[0]["Title"], "\n".join(row["Body"] for row in picked), "HQ"))
    return path, path.stat().st_size


def _ours(corpus: Path, folder: Path, model: Path) -> float:
    out = folder / "out"
    subprocess.run(["rm", "-rf", out], check=True)
    command = [sys.executable, "-m", "t5prep", "prepare", "so_quality", "--source", corpus, "--tokenizer", model]
    return _timed([*map(str, command), "--out", str(out), "--fresh"])


def _timed(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def _raw(corpus: Path, model: Path) -> float:
    """Seconds to encode every text with sentencepiece alone, on all cores; loading texts and model does not count."""
    cores = os.cpu_count() or 1
    ready, go = multiprocessing.Barrier(cores + 1), multiprocessing.Barrier(cores + 1)
    workers = [
        multiprocessing.Process(target=_encode_part, args=(corpus, model, part, cores, ready, go))
        for part in range(cores)
    ]
    for worker in workers:
        worker.start()
    ready.wait()
    began = time.perf_counter()
    go.wait()
    for worker in workers:
        worker.join()
    return time.perf_counter() - began


def _encode_part(corpus: Path, model: Path, part: int, parts: int, ready: object, go: object) -> None:
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    texts = [f"quality: {row['Title']} {row['Body']}" for row in _rows(corpus, encoding="utf-8")[part::parts]]
    ready.wait()  # type: ignore[attr-defined]
    go.wait()  # type: ignore[attr-defined]
    for text in texts:
        processor.encode(text)


def _datasets(corpus: Path, model: Path) -> float | None:
    """Seconds of the usual way: Hugging Face datasets, a fast tokenizer, TensorFlow's own Examples. None without them."""
    python = os.environ.get("PEER_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import datasets, tokenizers, tensorflow"], capture_output=True).returncode:
        return None
    script = Path(__file__).with_name("peer_datasets.py")
    return _timed([python, str(script), str(corpus), str(model.parent / "tokenizer.json")])


if __name__ == "__main__":
    main()
