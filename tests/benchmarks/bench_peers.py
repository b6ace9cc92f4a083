"""Preparing beside other programs that make training records of text, each in an environment of its own, as ratios.

    python -m tests.benchmarks.bench_peers --make        makes the environments (some minutes), then measures
    python -m tests.benchmarks.bench_peers               measures; who has no environment is left out

The texts are pieces of manuals (open_corpora, T5PREP_CORPORA) where they are at hand, else questions that are repeated. All start
from files on disk; starting Python counts for all. seqio and datatrove get two files, because one file is one worker's there.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from t5prep.io import cache_folder
from tests.benchmarks import bench_prepare, open_corpora, processor_time
from tests.benchmarks.processor_time import Line

HERE = Path(__file__).parent
ENVIRONMENTS = Path(os.environ.get("T5PREP_PEERS", cache_folder.root() / "peers"))
PACKAGES = {
    "datasets": ("datasets", "tokenizers", "tensorflow-cpu"),
    "datatrove": ("datatrove[io,processing]", "tokenizers", "orjson"),
    # seqio's own bounds let pip choose versions that crash each other.
    "seqio": ("seqio", "apache-beam==2.77.0", "sentencepiece==0.2.1", "google-crc32c", "tensorflow-cpu"),
}


def make(name: str) -> None:
    """Make the environment of a peer, unless it is there."""
    if not python_of(name).exists():
        venv.create(ENVIRONMENTS / name, with_pip=True)
        pip = [str(python_of(name)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        if subprocess.run([*pip, *PACKAGES[name]]).returncode:
            print(f"{name} cannot be installed here")


def python_of(name: str) -> Path:
    """Return the Python of a peer's environment."""
    return ENVIRONMENTS / name / "bin" / "python"


def write(folder: Path, *, megabytes: int) -> int:
    """Write the same texts as a CSV, as two files of JSON lines and as two of plain lines; return their bytes."""
    if open_corpora.folder():
        texts: Sequence[str] = open_corpora.texts("en_short")
    else:
        texts = [row["Body"] for row in bench_prepare.questions()[0]]
    for kind in ("csv", "jsonl", "lines"):
        (folder / kind).mkdir()
    size = number = 0
    with (
        open(folder / "csv/questions.csv", "w", newline="", encoding="utf-8") as table,
        open(folder / "jsonl/0.jsonl", "w") as one, open(folder / "jsonl/1.jsonl", "w") as two,
        open(folder / "lines/0.txt", "w") as lines, open(folder / "lines/1.txt", "w") as more_lines,
    ):  # fmt: skip
        rows = csv.writer(table)
        rows.writerow(["Id", "Title", "Body", "Y"])
        while size < megabytes * 1_000_000 and (number < len(texts) or not open_corpora.folder()):
            text = texts[number % len(texts)]
            number += 1
            size += len(text.encode())
            rows.writerow([number, "", text, "HQ"])
            (two if number % 2 else one).write(json.dumps({"id": str(number), "text": text}) + "\n")
            (more_lines if number % 2 else lines).write(" ".join(text.split()) + "\n")
    return size


def datasets(folder: Path, model: Path) -> list[str]:
    """Return the command of `datasets.map` with a fast tokenizer and TensorFlow's Examples."""
    return ["peer_datasets.py", str(folder / "csv/questions.csv"), str(model.with_name("tokenizer.json"))]


def datatrove(folder: Path, model: Path) -> list[str]:
    """Return the command of datatrove's DocumentTokenizer."""
    out = str(folder / "datatrove")
    return ["peer_datatrove_tokens.py", str(folder / "jsonl"), str(model.with_name("tokenizer.json")), out]


def seqio(folder: Path, model: Path) -> list[str]:
    """Return the command of `seqio_cache_tasks`, with the task in peer_seqio."""
    options = "--runner=DirectRunner,--direct_num_workers=2,--direct_running_mode=multi_processing"
    os.environ.update(SEQIO_TEXTS=str(folder / "lines/*.txt"), SEQIO_MODEL=str(model), PYTHONPATH=str(HERE))
    flags = ["--tasks=bench", f"--output_cache_dir={folder / 'seqio'}", "--module_import=peer_seqio"]
    return ["-m", "seqio.scripts.cache_tasks_main", *flags, f"--pipeline_options={options}"]


PEERS: dict[str, tuple[str, Callable[[Path, Path], list[str]]]] = {
    "datasets": ("datasets.map, fast tokenizer, tf.train.Example", datasets),
    "datatrove": ("datatrove's DocumentTokenizer, two workers", datatrove),
    "seqio": ("seqio_cache_tasks, two workers", seqio),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--make", action="store_true", help="make the environments that are not there")
    parser.add_argument("--megabytes", type=int, default=89)
    parser.add_argument("names", nargs="*", default=[*PEERS], help=f"which of {', '.join(PEERS)}")
    chosen = parser.parse_args()
    for name in chosen.names if chosen.make else ():
        make(name)
    processor_time.show(lines(chosen.names, megabytes=chosen.megabytes))


def lines(names: Sequence[str], *, megabytes: int) -> Iterator[Line]:
    """Yield a line for each program whose environment is there."""
    _, model = bench_prepare.questions()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        size = write(folder, megabytes=megabytes)
        for name in names:
            what, command = PEERS[name]
            if not python_of(name).exists() or not model.with_name("tokenizer.json").exists():
                print(f"{what}: left out, it is not installed (bench_peers --make)", file=sys.stderr)
                continue
            table = folder / "csv/questions.csv"
            own = min(bench_prepare.ours("so_quality", table, folder, model, "--fresh") for _ in range(2))
            script = command(folder, model)
            script = [str(HERE / script[0]), *script[1:]] if script[0].endswith(".py") else script
            theirs = processor_time.of_command([python_of(name), *script])
            yield Line(f"records of {size / 1e6:.0f} MB", what, [(own, theirs)])


if __name__ == "__main__":
    main()
