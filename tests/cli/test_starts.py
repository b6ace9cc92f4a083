"""A command does not import what it does not need."""

import subprocess
import sys
from pathlib import Path

PREPARE = """
import sys
from t5prep.cli import main
main(["prepare", "so_quality", "--source", "sample:", "--tokenizer", "sample:", "--out", sys.argv[1]], standalone_mode=False)
print([name for name in ("requests", "apache_beam", "tensorflow") if name in sys.modules], file=sys.stderr)
"""


def test_a_small_preparation_imports_neither_requests_nor_beam(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", PREPARE, tmp_path / "out"], capture_output=True, text=True, check=True
    )
    assert result.stderr.splitlines()[-1] == "[]"


def test_workers_are_forked_from_what_needs_no_parquet_and_reads_no_manifest() -> None:
    code = "import sys, pipelines.preloaded; print({'pyarrow.parquet', 'cattrs', 'importlib.metadata'} & sys.modules.keys())"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "set()\n"


def test_what_pyarrow_imports_with_its_first_array_is_imported_before_workers_are_forked() -> None:
    load = "import sys, pyarrow, pipelines.preloaded; there = {*sys.modules}"
    code = f"{load}; pyarrow.array([0]); print({{*sys.modules}} - there)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "set()\n"
