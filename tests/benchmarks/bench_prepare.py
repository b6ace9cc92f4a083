"""Preparing, end to end, against raw tokenizing of the same texts on all cores, in one run, as ratios.

    make bench                              about 200 MB, some minutes
    python -m tests.benchmarks.bench_prepare --megabytes 20
    PEER_PYTHON=peer/bin/python make bench  with `datasets` and TensorFlow in an environment of their own
    T5PREP_CORPORA=FOLDER make bench        the corpora of open vocabulary too, which open_corpora makes of Debian's manuals
    T5PREP_CORPORA=FOLDER python -m tests.benchmarks.bench_prepare --open --times 9    these alone, repeated to 800 MB

Each row prepares a file on disk into finished shards in a process of its own, start of Python, import of Beam and all.
The reference is SentencePiece's fastest call on the same texts, already in memory: `encode(texts, num_threads=...)`, to lists
or to numpy arrays, whichever takes less. It reads nothing, places nothing and writes nothing.
"""

import argparse
import csv
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet

from t5prep.sources import sample
from tests.benchmarks import open_corpora

SHARED = Path(__file__).parents[3] / "shared" / "data"
PROSE = SHARED / "english/wikitext2_valid.txt"
PAIRS = 3
COLUMNS = ("--inputs-column", "text", "--targets-column", "label", "--id-column", "id")


class Row(NamedTuple):
    """A line of the bench: rows to repeat, how many are joined to one document, and how they lie on disk.

    `times`: these rows and no more, each so often, however many megabytes are asked for: their vocabulary stays open. `more` are
    further options of prepare.
    """

    what: str
    rows: list[dict[str, str]]
    joined: int = 1
    suffix: str = "csv"
    task: str = "so_quality"
    times: int = 0
    more: tuple[str, ...] = ()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument(
        "--times", type=int, default=1, help="how often each text of open_corpora is there: 9 for 800 MB"
    )
    parser.add_argument("--open", action="store_true", help="only the corpora of open_corpora")
    chosen = parser.parse_args()
    rows, model = questions()
    print(f"{os.cpu_count()} cores, {model.name} of {model.parent.name}, {chosen.megabytes} MB, {chosen.pairs} pairs")
    corpora = [
        Row("questions as they are", rows),
        Row("the same as JSON lines", rows, suffix="jsonl"),
        Row("the same as Parquet", rows, suffix="parquet"),
        Row("documents of 2 questions", rows, joined=2),
        Row("documents of 8 questions", rows, joined=8),
    ]
    if PROSE.exists():
        lines = [{"Title": "", "Body": line} for line in PROSE.read_text().splitlines() if len(line) > 200]
        corpora.append(Row("documents of 8 paragraphs", lines, joined=8))
        corpora.append(Row("span_corruption of these", lines, joined=8, suffix="jsonl", task="span_corruption"))
    if chosen.open:
        corpora = []
    for name in ("en_short", "en_docs") if open_corpora.folder() else ():
        texts = [{"Title": "", "Body": text} for text in open_corpora.texts(name)]
        corpora += [
            Row(f"{name}, CSV", texts, times=chosen.times),
            Row(f"{name}, JSON lines", texts, times=chosen.times, suffix="jsonl"),
            Row(f"{name}, Parquet", texts, times=chosen.times, suffix="parquet"),
            Row(f"{name}, text2text", texts, times=chosen.times, suffix="jsonl", task="text2text", more=COLUMNS),
            Row(f"{name}, packed", texts, times=chosen.times, more=("--layout", "packed")),
            Row(f"{name}, span_corruption", texts, times=chosen.times, suffix="jsonl", task="span_corruption"),
        ]
    with tempfile.TemporaryDirectory() as folder:
        for row in corpora:
            path, size = corpus(row, Path(folder), megabytes=chosen.megabytes)
            pairs = [
                (ours(row.task, path, Path(folder), model, *row.more), _raw(path, model)) for _ in range(chosen.pairs)
            ]
            ratios = [raw / seconds for seconds, raw in pairs]
            shown = ", ".join(f"{ratio:.2f}" for ratio in ratios)
            print(
                f"{row.what:<26} {size / 1e6:6.0f} MB   speed / raw sentencepiece: median "
                f"{statistics.median(ratios):.2f}  ({shown})",
                flush=True,
            )
            if row.what == "questions as they are" and (theirs := _datasets(path, model)) is not None:
                print(
                    f"{'':<26} {'':>9}   speed / datasets.map + fast tokenizer + tf.train.Example: "
                    f"{theirs / statistics.median(seconds for seconds, _ in pairs):.1f}"
                )
            path.unlink()
    bare = min(timed([sys.executable, "-c", "pass"]) for _ in range(7))
    help_ = min(timed([sys.executable, "-m", "t5prep.cli", "--help"]) for _ in range(7))
    print(f"t5prep --help: {help_ / bare:.1f} times a bare `python -c pass`")


def questions() -> tuple[list[dict[str, str]], Path]:
    """Rows of so_quality and a tokenizer: the seeds' where they are at hand, else those that are built in."""
    path, model = SHARED / "stackoverflow/questions_cp1252.csv", SHARED / "t5_tokenizer/spiece.model"
    return (
        _rows(path, encoding="cp1252") if path.exists() else _sample_rows(),
        model if model.exists() else sample.tokenizer_path(),
    )


def _rows(path: Path, *, encoding: str) -> list[dict[str, str]]:
    csv.field_size_limit(sys.maxsize)
    with open(path, newline="", encoding=encoding) as file:
        return list(csv.DictReader(file))


def _sample_rows() -> list[dict[str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        return _rows(sample.write(Path(folder) / "questions.csv"), encoding="utf-8")


def corpus(row: Row, folder: Path, *, megabytes: int) -> tuple[Path, int]:
    """Rows repeated and shuffled, with ids of their own, as one file of about so many megabytes."""
    chooser = random.Random(0)
    path = folder / f"corpus.{row.suffix}"
    made: list[dict[str, str | int]] = []
    size = 0
    while len(made) < row.times * len(row.rows) if row.times else size < megabytes * 1_000_000:
        picked = [row.rows[len(made) % len(row.rows)]] if row.times else chooser.choices(row.rows, k=row.joined)
        body = "\n".join(one["Body"] for one in picked)
        size += len(body.encode()) + 32
        if row.task == "text2text":  # an id and a label that are numbers, which is how most tables have them
            made.append({"id": len(made) + 1, "text": body, "label": len(made) % 2})
        elif row.task == "so_quality":
            made.append({"Id": str(len(made) + 1), "Title": picked[0]["Title"], "Body": body, "Y": "HQ"})
        else:
            made.append({"text": body})
    if row.suffix == "parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(made), path, row_group_size=16_384)
    else:
        with open(path, "w", newline="", encoding="utf-8") as file:
            if row.suffix == "jsonl":
                file.writelines(json.dumps(one, ensure_ascii=False) + "\n" for one in made)
            else:
                writer = csv.DictWriter(file, made[0])
                writer.writeheader()
                writer.writerows(made)
    return path, size


def ours(task: str, corpus: Path, folder: Path, model: Path, *more: str) -> float:
    """Seconds to prepare a corpus with the command line."""
    out = folder / "out"
    subprocess.run(["rm", "-rf", out], check=True)
    command = [sys.executable, "-m", "t5prep.cli", "prepare", task, "--source", corpus, "--tokenizer", model]
    return timed([*map(str, command), "--out", str(out), "--fresh", *more])


def timed(command: list[str]) -> float:
    """Seconds that a command takes; what it prints is not shown. Its modules may be kept compiled, as pip leaves a user's."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return time.perf_counter() - began


def _raw(corpus: Path, model: Path) -> float:
    """Seconds of SentencePiece's fastest call on the same texts, with a thread for each core; loading them does not count."""
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    texts = _texts(corpus)
    taken = []
    for form in (int, "numpy"):  # lists of numbers, or arrays: which is faster depends on the lengths of the texts
        began = time.perf_counter()
        processor.encode(texts, num_threads=os.cpu_count(), return_type=form)
        taken.append(time.perf_counter() - began)
    return min(taken)


def _texts(corpus: Path) -> list[str]:
    if corpus.suffix == ".parquet":
        rows = pyarrow.parquet.read_table(corpus).to_pylist()
    elif corpus.suffix == ".jsonl":
        with open(corpus, encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
    else:
        rows = _rows(corpus, encoding="utf-8")
    return [row["text"] if "text" in row else f"quality: {row['Title']} {row['Body']}" for row in rows]


def _datasets(corpus: Path, model: Path) -> float | None:
    """Seconds of the usual way: Hugging Face datasets, a fast tokenizer, TensorFlow's own Examples. None without them."""
    python = os.environ.get("PEER_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import datasets, tokenizers, tensorflow"], capture_output=True).returncode:
        return None
    script = Path(__file__).with_name("peer_datasets.py")
    return timed([python, str(script), str(corpus), str(model.parent / "tokenizer.json")])


if __name__ == "__main__":
    main()
