"""A command does not import what it does not need: pandas, for which pyarrow looks, and requests."""

import subprocess
import sys
from pathlib import Path

import pytest

PREPARE = """
import sys
from t5prep.cli import main
main(["prepare", "so_quality", "--source", "sample:", "--tokenizer", "sample:", "--out", sys.argv[1]], standalone_mode=False)
print([name for name in ("pandas", "requests", "apache_beam", "tensorflow") if name in sys.modules], file=sys.stderr)
"""
FRAMES = """
from t5prep.io import without_pandas
without_pandas.start()
import pyarrow, pandas
frame = pandas.DataFrame({"a": [1.5, float("nan")], "b": ["x", None]})
table = pyarrow.Table.from_pandas(frame)
assert table.to_pandas().equals(frame)
print(table.column("a").null_count, pyarrow.array(frame.b).null_count)
"""


def test_a_small_preparation_imports_neither_pandas_nor_requests(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PREPARE, tmp_path / "out"], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "[]"


def test_frames_become_tables_after_a_start_without_pandas() -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    done = subprocess.run([sys.executable, "-c", FRAMES], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "1"]
