"""What Beam prints when its workers end is kept from the user, and nothing else is."""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from pipelines import engines


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
def test_a_run_on_flink_that_succeeds_prints_no_traceback(tmp_path: Path) -> None:
    """What the command itself prints when Flink's servers and workers end; other tests of Flink look at bytes."""
    line = [
        "so_quality",
        "--source",
        "sample:",
        "--tokenizer",
        "sample:",
        "--out",
        str(tmp_path / "out"),
        "--limit",
        "50",
    ]
    result = subprocess.run(
        [sys.executable, "-m", "t5prep.cli", "prepare", *line, "--runner", "flink", "--workers", "1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    reads, *_, costs = lines = result.stderr.splitlines()
    assert len(lines) == 4, lines
    assert reads.startswith("  reads         1 file")
    assert costs.startswith("  flink         0.00 vCPU-hours")
