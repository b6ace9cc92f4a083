"""The notebooks' cells run from top to bottom; the first prints what it shows, the second meets Kaggle's stand-in and no TPU."""

import contextlib
import fnmatch
import glob
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import published_models
import pytest
from servers.corpora import publish
from servers.internet import Internet

ROOT = Path(__file__).parents[1]
FROM_A_CSV = ROOT / "docs" / "from-a-csv-to-predictions.ipynb"
FROM_KAGGLE = ROOT / "docs" / "from-kaggle-to-a-tpu.ipynb"


def _cells(notebook: Path) -> list[dict]:
    """Return the code cells."""
    return [cell for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]


def _join_outputs(cell: dict) -> str:
    """Return what a cell shows below its code."""
    return "".join("".join(output["text"]) for output in cell["outputs"])


def run_cells(notebook: str) -> None:
    """Run the cells here, and print what each of them printed as a line of JSON."""
    names = {"__name__": "__main__"}
    for cell in _cells(Path(notebook)):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec("".join(cell["source"]), names)
        print(json.dumps(printed.getvalue()))


def _printed(notebook: Path, folder: Path, **environment: str) -> list[str]:
    """Return what each cell prints in a process of its own, which works in a folder."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    environment = {**os.environ, "PYTHONPATH": paths, "T5PREP_CACHE": str(folder / "cache"), **environment}
    code = f"import test_notebook; test_notebook.run_cells({str(notebook)!r})"
    ran = subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return [json.loads(line) for line in ran.stdout.splitlines()]


@pytest.mark.parametrize("notebook", [FROM_A_CSV, FROM_KAGGLE], ids=lambda path: path.stem)
def test_it_is_a_notebook(notebook: Path) -> None:
    notebook_json = json.loads(notebook.read_text(encoding="utf-8"))
    assert (notebook_json["nbformat"], notebook_json["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in notebook_json["cells"]}) == len(notebook_json["cells"])
    cells = _cells(notebook)
    ran = range(1, len(cells) + 1) if notebook == FROM_A_CSV else [None] * len(cells)  # its rows are Kaggle's
    assert [cell["execution_count"] for cell in cells] == list(ran)
    for cell in cells:
        compile("".join(cell["source"]), notebook.name, "exec")


@pytest.mark.slow
def test_its_cells_run_and_print_what_it_shows(tmp_path: Path) -> None:
    """The notebook's cells print its stored output, character by character."""
    assert _printed(FROM_A_CSV, tmp_path) == [_join_outputs(cell) for cell in _cells(FROM_A_CSV)]


@pytest.mark.slow
def test_the_way_from_kaggle_runs_up_to_the_hardware(internet: Internet, tmp_path: Path) -> None:
    """Every cell, on the CPU, from a server that answers as Kaggle to a model that transformers' files describe."""
    publish(internet)
    internet.hub.models["google-t5/t5-small"] = published_models.files("google-t5/t5-base", tmp_path / "t5-small")
    (work_folder := tmp_path / "here").mkdir()
    device_output, prepared, trained, scored, prediction_output, packed = _printed(
        FROM_KAGGLE, work_folder, **internet.environment
    )
    assert device_output == "device: the CPU\n"
    assert "train 30 records {" in prepared
    assert "validation 9 records {" in prepared
    assert "source: kaggle:imoore/60k-stack-overflow-questions-with-quality-rate version 2\n" in prepared
    assert re.fullmatch(r"4 steps, best checkpoint: work/run/checkpoints/0000000[24]\n", trained)
    head, columns, *rows = scored.splitlines()
    assert re.fullmatch(r"accuracy [01]\.\d{4} on 9 questions", head)
    assert columns.split() == ["none", "low", "high", "other"]
    table = [[int(count) for count in row.split()[1:]] for row in rows[:3]]
    assert sum(map(sum, table)) == 9
    assert float(head.split()[1]) == pytest.approx(sum(table[n][n] for n in range(3)) / 9, abs=1e-4)
    wrong = 9 - sum(table[n][n] for n in range(3))
    assert len(rows[3:]) == wrong  # three of each class at most, and up to four are drawn
    assert prediction_output.startswith("mine ")
    assert packed == "model.zip\n"
    assert (work_folder / "model.zip").stat().st_size > 1000


@pytest.mark.parametrize(
    ("chips", "programs", "device", "packages"),
    [
        (["/dev/accel0"], [], {"tpu": "local"}, ["./t5prep-clone[tpu]"]),
        (["/dev/vfio/0"], ["nvidia-smi"], {"tpu": "local"}, ["./t5prep-clone[tpu]"]),
        ([], ["nvidia-smi"], {"gpus": True}, ["./t5prep-clone[gpu]"]),
        ([], [], {}, ["./t5prep-clone[train]"]),
    ],
)
def test_the_hardware_that_is_lent_is_found(chips, programs, device, packages, monkeypatch) -> None:
    """By the patterns of `--tpu`; and what is installed for it are extras that there are."""
    from t5prep.training.runtime import devices

    monkeypatch.setattr(glob, "glob", lambda pattern: fnmatch.filter(chips, pattern))
    monkeypatch.setattr(shutil, "which", lambda name: name if name in programs else None)
    names: dict = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec("".join(_cells(FROM_KAGGLE)[0]["source"]), names)
    assert (names["device"], names["packages"]) == (device, packages)
    assert bool(devices.chips()) == ("tpu" in device)
    setup = (ROOT / "setup.py").read_text(encoding="utf-8")
    assert all(f'        "{extra}": ' in setup for extra in re.findall(r"clone\[(\w+)\]", " ".join(packages)))
