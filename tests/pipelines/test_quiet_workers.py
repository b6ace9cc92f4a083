"""What Beam prints when its workers end is kept from the user, and nothing else is."""

import contextlib
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from small_corpora import bytes_of, prepared, questions, write_csv

from pipelines import engines
from t5prep.tasks.corpora import so_quality


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    previous_hook = threading.excepthook
    monkeypatch.setenv("PATH", os.environ["PATH"])
    yield
    threading.excepthook = previous_hook


def test_workers_are_this_python_without_stderr() -> None:
    previous_path = os.environ["PATH"]
    with engines.started_quietly():
        python_path = shutil.which("python") or ""
        code = "import sys; print(sys.prefix); print('noise', file=sys.stderr); sys.exit(3)"
        result = subprocess.run([python_path, "-c", code], capture_output=True, text=True, check=False)
    assert (result.stdout.strip(), result.stderr, result.returncode) == (sys.prefix, "", 3)
    assert not Path(python_path).exists()
    assert os.environ["PATH"] == previous_path, "what this process starts later would print nothing on stderr"


def test_threads_that_lose_their_connection_end_quietly_and_others_do_not() -> None:
    reported_errors: list[BaseException | None] = []
    threading.excepthook = lambda args: reported_errors.append(args.exc_value)
    for _ in range(2):
        engines.ignore_closed_connections()

    def fail(error: Exception) -> None:
        raise error

    wrong = ValueError("ours")
    for error in (grpc.RpcError("Stream removed"), wrong):
        thread = threading.Thread(target=fail, args=(error,))
        thread.start()
        thread.join()
    assert reported_errors == [wrong]


@pytest.mark.extra("flink")
@pytest.mark.slow
def test_a_command_on_flink_makes_the_bytes_of_a_local_run_and_ends_quietly(tmp_path: Path) -> None:
    """A task of the user's own file, near-duplicates; what is printed when servers and workers end, and that they end."""
    task = tmp_path / "mine.py"
    task.write_bytes(Path(so_quality.__file__).read_bytes().replace(b"quality: ", b"judge: "))
    rows = questions(60)
    source = write_csv(tmp_path / "rows.csv", [*rows, *(dict(row, Id=f"again {row['Id']}") for row in rows[::9])])
    choices = {"task": str(task), "tokenizer": "sample:", "shards": 2, "dedup": "near"}
    manifest = prepared(source, tmp_path / "near", **choices)
    assert manifest.rejected
    line = [str(task), "--source", source, "--tokenizer", "sample:", "--out", tmp_path / "far", "--shards", "2"]
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "t5prep.cli",
            "prepare",
            *line,
            "--dedup",
            "near",
            "--runner",
            "flink",
            "--workers",
            "1",
        ],
        env={**os.environ, "T5PREP_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    reads, *_, costs = lines = result.stderr.splitlines()
    assert len(lines) == 4, lines
    assert reads.startswith("  reads         1 file")
    assert costs.startswith("  flink         0.00 vCPU-hours")
    assert bytes_of(tmp_path / "far") == bytes_of(tmp_path / "near")
    assert not processes_with(str(tmp_path / "cache")), "Flink's job server lives on"


def processes_with(value: str) -> list[bytes]:
    """The command lines of the processes in whose environment a value is."""
    commands = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if value.encode() in (folder / "environ").read_bytes():
                commands.append((folder / "cmdline").read_bytes())
    return commands
