"""The notebook's cells run from top to bottom, and print what it shows."""

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "docs" / "from-a-csv-to-predictions.ipynb"


def _cells() -> list[dict]:
    """Return the code cells."""
    return [cell for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]


def _shown(cell: dict) -> str:
    """Return what a cell shows below its code."""
    return "".join("".join(output["text"]) for output in cell["outputs"])


def run_cells() -> None:
    """Run the cells here, and print what each of them printed as a line of JSON."""
    names = {"__name__": "__main__"}
    for cell in _cells():
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec("".join(cell["source"]), names)
        print(json.dumps(printed.getvalue()))


def test_it_is_a_notebook() -> None:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    assert [cell["execution_count"] for cell in _cells()] == list(range(1, len(_cells()) + 1))
    for cell in _cells():
        compile("".join(cell["source"]), NOTEBOOK.name, "exec")


@pytest.mark.slow
def test_its_cells_run_and_print_what_it_shows(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow", reason="needs the extra train")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
        "T5PREP_CACHE": str(tmp_path / "cache"),
    }
    code = "import test_notebook; test_notebook.run_cells()"
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-3000:]
    printed = [json.loads(line) for line in ran.stdout.splitlines()]
    assert printed == [_shown(cell) for cell in _cells()]
