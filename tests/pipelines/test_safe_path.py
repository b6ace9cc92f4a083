"""No process that is started imports Python files of the folder that the user happens to be in."""

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from t5prep.cli import _checks
from t5prep.planning import compiled

# Modules that Python and its libraries import when a process starts, and the package itself.
NAMES = ("random", "csv", "json", "signal", "threading", "pipelines/__init__", "t5prep/__init__", "numpy/__init__")


@pytest.fixture
def trapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with files that leave a trace when they are executed; the file of that trace."""
    folder, trace = tmp_path / "here", tmp_path / "executed"
    for name in NAMES:
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"open({str(trace)!r}, 'a').write({name!r} + ' ')\n")
    monkeypatch.chdir(folder)
    return trace


def test_workers_of_prepare_execute_nothing_of_the_current_folder(trapped: Path, tmp_path: Path) -> None:
    line = [
        shutil.which("t5prep", path=os.path.dirname(sys.executable)),
        "prepare",
        "so_quality",
        "--source",
        "sample:",
    ]
    line += ["--tokenizer", "sample:", "--out", str(tmp_path / "out"), "--workers", "2"]
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONSAFEPATH", "PYTHONPATH")}
    result = subprocess.run(line, capture_output=True, text=True, env=environment, check=False)
    assert not trapped.exists(), trapped.read_text()
    assert result.returncode == 0, result.stderr


def test_a_program_that_uses_the_package_starts_workers_safely(trapped: Path, tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text(
        textwrap.dedent("""
            import os
            from pipelines import pool
            if __name__ == "__main__":
                workers = pool.Pool(1, warm=print)
                print(list(pool.map_ordered(workers, len, ["four"])), os.environ.get("PYTHONSAFEPATH"))
                workers.close()
        """)
    )
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONSAFEPATH", "PYTHONPATH")}
    result = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment, check=False)
    assert not trapped.exists(), trapped.read_text()
    assert "[4] None" in result.stdout, result.stderr


def test_what_doctor_and_plan_start_executes_nothing_of_the_current_folder(
    trapped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    assert _checks.run_python("import csv, json; print(json.dumps({'answer': 1}))") == {"answer": 1}
    assert "error" in compiled._run({}, topology="none", devices=1)
    assert not trapped.exists(), trapped.read_text()
