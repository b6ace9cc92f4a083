"""Does a corpus of one hot key take longer than an even one of as many bytes?

    python -m tests.benchmarks.bench_shapes 300000

One text in all rows, one group of a third of them, one file of all bytes, and very many files of a kilobyte, each beside what is
even. CPU seconds are those of all processes, so that other work on the machine does not count.
"""

import json
import sys
import tempfile
from pathlib import Path

import click

from t5prep.io import byte_sizes
from tests.benchmarks.bench_scale import few_words, watched

FILES = 16
# Rows of a file of a kilobyte.
SMALL = 10
# Name → which of: one text, one group, one file, small files; and the choices.
SHAPES: dict[str, tuple[str, dict[str, object]]] = {
    "different texts": ("", {"dedup": "exact"}),
    "one text": ("text", {"dedup": "exact"}),
    "groups of three": ("groups", {"group_column": "group", "splits": {"train": 0.9, "test": 0.1}}),
    "one group of a third": ("group", {"group_column": "group", "splits": {"train": 0.9, "test": 0.1}}),
    f"{FILES} files": ("", {}),
    "one file": ("file", {}),
    "files of a kilobyte": ("small", {}),
}


def corpus(folder: Path, *, rows: int, shape: str) -> None:
    """Write so many rows of one length in files."""
    folder.mkdir()
    file_rows = {"file": rows, "small": SMALL}.get(shape, -(-rows // FILES))
    for begin in range(0, rows, file_rows):
        with open(folder / f"part-{begin // file_rows:06d}.jsonl", "w", encoding="ascii") as file:
            for row in range(begin, min(rows, begin + file_rows)):
                text = few_words(0) if shape == "text" else f"{row:08d} {few_words(row)}"
                group = 0 if shape == "group" and row % 3 == 0 else row // 3
                file.write(
                    f'{{"id": "r{row:010d}", "inputs": "{text:40}", "targets": "{row % 7}", "group": "{group:08d}"}}\n'
                )


def prepare(source: str, out: str, **choices: object) -> None:
    """Prepare the rows with two workers."""
    from pipelines.prepare import PrepareRequest, prepare_resolved
    from pipelines.run_options import RunOptions
    from t5prep import sources
    from t5prep.preparation import task_settings
    from t5prep.tasks import registry

    definition = registry.get("text2text")
    task = definition.choose({"inputs_column": "inputs", "targets_column": "targets"})
    options = {"input_length": 64, "target_length": 4, "layout": "ragged", "shards": 16}
    settings = task_settings.requested(task, {**options, **choices})
    run = RunOptions(workers=2)
    prepare_resolved(PrepareRequest(definition, task, settings, sources.resolve(source), "sample:", out, run))


@click.command()
@click.argument("rows", type=int)
@click.option("--only", default="", help="Shapes with this in their name alone.")
@click.option("--child", default="", hidden=True)
def main(rows: int, only: str, child: str) -> None:
    """Print a line for each shape."""
    if child:
        prepare(**json.loads(child))
        return
    for name, (shape, choices) in SHAPES.items():
        if only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            corpus(Path(folder) / "rows", rows=rows, shape=shape)
            options_json = json.dumps({"source": f"{folder}/rows", "out": f"{folder}/out", **choices})
            cpu, peak = watched(
                [sys.executable, "-m", "tests.benchmarks.bench_shapes", str(rows), "--child", options_json]
            )
            memory = " ".join(f"{byte_sizes.text(part):>10}" for part in peak)
            click.echo(f"{name:>22} {1e6 * cpu / rows:>8.2f} CPU us a row {memory}   (first, a worker, together)")


if __name__ == "__main__":
    main()
