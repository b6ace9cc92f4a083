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
    done = subprocess.run([sys.executable, "-c", PREPARE, tmp_path / "out"], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "[]"
