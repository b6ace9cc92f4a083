"""Preparing, end to end, beside SentencePiece's fastest call on the same texts, in one run, as ratios.

    python -m tests.benchmarks.bench_prepare [--megabytes 90] [--pairs 2] [--times 9]
    T5PREP_CORPORA=FOLDER python -m tests.benchmarks.bench_prepare     with texts of open vocabulary (open_corpora)
    python -m tests.benchmarks.bench_prepare --stages                  the budget: each stage beside the least it can take

Each line prepares a file on disk into finished shards in a process of its own, start of Python and all. The reference is
SentencePiece's fastest call on the same texts, already in memory: `encode(texts, num_threads=...)`, to lists or to numpy
arrays, whichever takes less. It reads nothing, places nothing and writes nothing. Without open corpora the texts are questions
that are repeated, whose words every cache soon knows; `--times 9` repeats those of open vocabulary to 800 MB.
"""

import argparse
import csv
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet

from t5prep.sources import sample
from tests.benchmarks import bench_stages, open_corpora, processor_time
from tests.benchmarks.processor_time import Line, Seconds

SHARED = Path(__file__).parents[3] / "shared" / "data"
TWO_COLUMNS = ("--inputs-column", "text", "--targets-column", "label", "--id-column", "id")
FASTEST = "SentencePiece's fastest call"
PYTHON_TASK = """
from t5prep.tasks import Columns, Example, Task

def to_example(record, options):
    return Example(id=record["Id"], inputs=f"quality: {record['Title']} {record['Body']}", targets=record["Y"])

TASK = Task(to_example=to_example, columns=Columns(inputs=["Title", "Body"], targets=["Y"], id="Id"), target_length=2)
"""


class Form(NamedTuple):
    """A line of the bench: how the texts lie on disk, the task, and further options of prepare."""

    description: str
    file: str
    task: str
    extra_options: tuple[str, ...] = ()


# In `numbers.jsonl` id and label are numbers, which is how most tables have them.
FORMS = (
    Form("CSV", "rows.csv", "so_quality"),
    Form("JSON lines", "rows.jsonl", "so_quality"),
    Form("Parquet", "rows.parquet", "so_quality"),
    Form("JSON lines, two columns", "numbers.jsonl", "text2text", TWO_COLUMNS),
    Form("CSV, packed records", "rows.csv", "so_quality", ("--layout", "packed")),
    Form("JSON lines, span corruption", "numbers.jsonl", "span_corruption"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=90, help="of questions, where there is no open corpus")
    parser.add_argument("--times", type=int, default=1, help="how often each text of open_corpora is there")
    parser.add_argument("--pairs", type=int, default=2)
    parser.add_argument("--stages", action="store_true", help="print what each stage takes instead")
    chosen = parser.parse_args()
    if not chosen.stages:
        processor_time.show(lines(pairs=chosen.pairs, megabytes=chosen.megabytes, times=chosen.times))
        return
    for name in names():
        with tempfile.TemporaryDirectory() as folder:
            texts = corpus(name, Path(folder), megabytes=chosen.megabytes, times=chosen.times)
            for form in FORMS[:3]:
                bench_stages.show(
                    f"{name}, {form.description}", form.task, Path(folder) / form.file, texts, questions()[1]
                )


def names() -> tuple[str, ...]:
    """Return the corpora that are at hand."""
    return ("en_short", "en_docs") if open_corpora.folder() else ("questions",)


def lines(*, pairs: int = 1, megabytes: int = 90, times: int = 1) -> Iterator[Line]:
    """Yield a line for each form of each corpus; of the first, also a second run, a task in Python, and one worker."""
    model = questions()[1]
    for name in names():
        with tempfile.TemporaryDirectory() as temporary_folder:
            folder = Path(temporary_folder)
            os.environ["T5PREP_CACHE"] = str(folder / "cache")
            texts = corpus(name, folder, megabytes=megabytes, times=times)
            size = f"{name}, {sum(len(text.encode()) for text in texts) / 1e6:.0f} MB"
            forms = list(FORMS)
            if name == names()[0]:
                (folder / "by_hand.py").write_text(PYTHON_TASK)
                forms.append(Form("CSV, a task in Python", "rows.csv", str(folder / "by_hand.py")))
            raw = [_raw(texts, model) for _ in range(pairs)]
            for form in forms:
                timings = [
                    ours(form.task, folder / form.file, folder, model, "--fresh", *form.extra_options)
                    for _ in range(pairs)
                ]
                yield Line(f"{size}, {form.description}", FASTEST, list(zip(timings, raw, strict=True)))
            if name != names()[0]:
                continue
            file = folder / "rows.csv"
            seed_seconds = [ours("so_quality", file, folder, model, "--seed", seed + 1) for seed in range(pairs)]
            yield Line(f"{size}, CSV again with another seed", FASTEST, list(zip(seed_seconds, raw, strict=True)))
            both = [
                [ours("so_quality", file, folder, model, "--fresh", "--workers", n) for n in (2, 1)]
                for _ in range(pairs)
            ]
            yield Line(f"{size}, CSV with two workers", "one worker", [(two, one_worker) for two, one_worker in both])


def questions() -> tuple[list[dict[str, str]], Path]:
    """Rows of so_quality and a tokenizer: the seeds' where they are at hand, else those that are built in."""
    path, model = SHARED / "stackoverflow/questions_cp1252.csv", SHARED / "t5_tokenizer/spiece.model"
    csv.field_size_limit(sys.maxsize)
    with tempfile.TemporaryDirectory() as folder:
        is_available = path.exists()
        path = path if is_available else sample.write(Path(folder) / "questions.csv")
        with open(path, newline="", encoding="cp1252" if is_available else "utf-8") as file:
            rows = list(csv.DictReader(file))
    return rows, model if model.exists() else sample.tokenizer_path()


def corpus(name: str, folder: Path, *, megabytes: int, times: int) -> list[str]:
    """Write the texts of a corpus in all forms, with ids of their own, and return them."""
    if name == "questions":
        bodies = [row["Body"] for row in questions()[0]]
        texts = bodies * (1 + megabytes * 1_000_000 // sum(len(body.encode()) for body in bodies))
    else:
        texts = open_corpora.texts(name) * times
    rows = [{"Id": str(number), "Title": "", "Body": text, "Y": "HQ"} for number, text in enumerate(texts, 1)]
    with open(folder / "rows.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows), folder / "rows.parquet", row_group_size=16_384)
    numbers = ({"id": number, "text": text, "label": number % 2} for number, text in enumerate(texts, 1))
    for path, records in (("rows.jsonl", rows), ("numbers.jsonl", numbers)):
        with open(folder / path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    return [f"quality:  {text}" for text in texts]


def ours(task: str, source: Path, folder: Path, model: Path, *extra_options: object) -> Seconds:
    """Return what it takes to prepare a corpus with the command line."""
    shutil.rmtree(folder / "out", ignore_errors=True)
    command = [sys.executable, "-m", "t5prep.cli", "prepare", task, "--source", source, "--tokenizer", model]
    return processor_time.of_command([*command, "--out", folder / "out", *extra_options])


def _raw(texts: list[str], model: Path) -> Seconds:
    """Return what SentencePiece's fastest call takes, with a thread for each core; loading its model does not count.

    Lists of numbers, or arrays: which is faster depends on the lengths of the texts.
    """
    import sentencepiece

    encode = sentencepiece.SentencePieceProcessor(model_file=str(model)).encode
    forms: tuple[object, ...] = (int, "numpy")
    timings = [
        processor_time.of_call(lambda form=form: encode(texts, num_threads=os.cpu_count(), return_type=form))
        for form in forms
    ]
    return min(timings)


if __name__ == "__main__":
    main()
