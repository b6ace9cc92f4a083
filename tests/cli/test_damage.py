"""Files damaged at random places, in every stage before training: exit 0, 1 or 2, at most three lines, no traceback.

What training reads (checkpoints, models, runs) is damaged in tests/train/test_fuzz_training.py. The large run, by hand:
python tests/cli/test_damage.py 2000
"""

import gzip
import json
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from click.testing import CliRunner
from odd import SEED, fault
from preparing import prepared, questions, write_csv

from t5prep.cli import main
from t5prep.errors import T5prepError
from t5prep.sources import sample

CASES = 30
MOST_LINES = 3


def damaged(content: bytes, draw: random.Random) -> bytes:
    """The same file with something wrong somewhere."""
    if not content:
        return b"\0"
    place = draw.randrange(len(content))
    other = bytearray(content)
    match draw.randrange(6):
        case 0:
            other[place] ^= 1 << draw.randrange(8)
        case 1:
            other = other[:place]
        case 2:
            other[place : place + draw.randrange(1, 64)] = b""
        case 3:
            other[place:place] = draw.randbytes(draw.randrange(1, 64))
        case 4:
            other[place : place + 32] = bytes(32)
        case _:
            other += other[place:]
    return bytes(other)


def sources(folder: Path) -> list[Path]:
    """The same rows in each format."""
    rows = questions(30)
    folder.mkdir()
    write_csv(folder / "rows.csv", rows)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "rows.jsonl").write_text(lines)
    (folder / "rows.json").write_text(json.dumps(rows, indent=1))
    (folder / "rows.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    (folder / "rows.jsonl.zst").write_bytes(pa.Codec("zstd").compress(lines.encode()).to_pybytes())
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows), folder / "rows.parquet")
    return sorted(folder.iterdir())


class Stages:
    """Good files of each stage in a folder, and what is done with one of them when it is damaged."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sources = sources(folder / "sources")
        prepared(folder / "sources" / "rows.csv", folder / "data", tokenizer="sample:", input_length=64)
        self.runner = CliRunner()

    def case(self, draw: random.Random) -> str:
        """What went wrong in one case, or ""."""
        stage: Callable[[random.Random, Path], str] = draw.choice(
            [self._source, self._tokenizer, self._dataset, self._dataset, self._dataset]
        )
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            return stage(draw, Path(name))

    def _source(self, draw: random.Random, place: Path) -> str:
        good = draw.choice(self.sources)
        path = place / good.name
        path.write_bytes(damaged(good.read_bytes(), draw))
        try:
            prepared(path, place / "out", tokenizer="sample:", input_length=64)
        except T5prepError as error:
            return (
                ""
                if str(error).count("\n") < MOST_LINES and not (place / "out" / "manifest.json").exists()
                else str(error)
            )
        return self._line(["verify", str(place / "out")], well=True)

    def _tokenizer(self, draw: random.Random, place: Path) -> str:
        path = place / "tokenizer.model"
        path.write_bytes(damaged(sample.tokenizer_path().read_bytes(), draw))
        source = str(self.folder / "sources" / "rows.csv")
        return self._line(["tokenizer", "check", str(path), "--source", source, "--column", "Body"])

    def _dataset(self, draw: random.Random, place: Path) -> str:
        data = place / "data"
        shutil.copytree(self.folder / "data", data)
        path = draw.choice(sorted(data.iterdir()))
        path.write_bytes(damaged(path.read_bytes(), draw))
        line = draw.choice(
            [["verify"], ["inspect"], ["inspect", "-n", "50"], ["report", "--out", str(place / "r.html")], ["diff"]]
        )
        return self._line([line[0], str(data), *([str(self.folder / "data")] if line == ["diff"] else []), *line[1:]])

    def _line(self, line: list[str], *, well: bool = False) -> str:
        if wrong := fault(self.runner, line):
            return f"{line}: {wrong}"
        result = self.runner.invoke(main, line)
        if result.stderr.count("\n") > MOST_LINES or (well and result.exit_code):
            return f"{line}: {result.stderr}"
        return ""


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Stages:
    return Stages(tmp_path_factory.mktemp("stages"))


@pytest.mark.parametrize("number", range(3))
def test_no_damage_ends_in_a_traceback(number: int, stages: Stages) -> None:
    draw = random.Random(f"{SEED} damage {number}")
    for case in range(CASES // 3):
        if wrong := stages.case(draw):
            pytest.fail(f"round {number}, case {case}: {wrong}", pytrace=False)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        every, draw = Stages(Path(folder)), random.Random(SEED)
        for case in range(int(sys.argv[1])):
            if wrong := every.case(draw):
                sys.exit(f"case {case}: {wrong}")
        print(f"{sys.argv[1]} cases: each ended with a sentence or well")
