"""Where a command is allowed too little memory it says so in one sentence."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from raised import assert_error

COMMANDS = {
    "prepare": [
        "prepare",
        "so_quality",
        "--source",
        "sample:",
        "--tokenizer",
        "sample:",
        "--out",
        "OUT",
        "--workers",
        "1",
    ],
    "tokenizer": ["tokenizer", "train", "--source", "sample:", "--out", "OUT"],
    "predict": ["predict", "rows.csv", "--model", "run", "--out", "OUT"],
    "train": ["train", "--recipe", "tiny", "--data", "data", "--out", "OUT"],
    "report": ["report", "data", "--out", "OUT"],
}


@pytest.mark.parametrize(
    ("command", "megabytes", "least"),
    [
        ("prepare", 400, "2,048 MiB"),
        ("prepare", 1000, "2,048 MiB"),
        ("tokenizer", 1000, "2,048 MiB"),
        ("predict", 1800, "3,072 MiB"),  # XLA aborted the process, with 40 lines
        ("train", 2400, "3,072 MiB"),
        ("report", 300, "512 MiB"),  # and so did OpenBLAS
    ],
)
def test_too_little_memory_is_a_sentence(tmp_path: Path, command: str, megabytes: int, least: str) -> None:
    line = [str(tmp_path / "out") if word == "OUT" else word for word in COMMANDS[command]]
    limit = megabytes << 20
    result = subprocess.run(
        [sys.executable, "-m", "t5prep.cli", *line],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
        capture_output=True,
        text=True,
        env={"T5PREP_CACHE": str(tmp_path / "cache"), "OPENBLAS_NUM_THREADS": "1", "PATH": ""},
        check=False,
    )
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert_error(line, "device.address-space-limit", "ulimit -v", f"{megabytes:,} MiB", least)
    assert not (tmp_path / "out").exists()


def test_where_address_space_is_limited_openblas_starts_one_thread() -> None:
    """It would take more for a thread of each core, and end the process with words of its own."""
    code = (
        "import os, resource, sys; sys.argv = ['t5prep', 'tasks']; limit = resource.RLIMIT_AS\n"
        "if os.environ['LIMIT']: resource.setrlimit(limit, (int(os.environ['LIMIT']), -1))\n"
        "from t5prep.cli import main; main(standalone_mode=False); print(os.environ.get('OPENBLAS_NUM_THREADS'))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    for limit, threads in (("", "None"), (str(8 << 30), "1")):
        result = subprocess.run(
            [sys.executable, "-c", code],
            env={**environment, "LIMIT": limit},
            capture_output=True,
            text=True,
            check=True,
        )
        assert result.stdout.splitlines()[-1] == threads
