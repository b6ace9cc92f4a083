"""Where a command is allowed too little memory it says so in one sentence."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("megabytes", [300])
def test_too_little_memory_is_a_sentence(tmp_path: Path, megabytes: int) -> None:
    line = ["prepare", "so_quality", "--source", "sample:", "--tokenizer", "sample:", "--out", str(tmp_path / "out")]
    limit = megabytes << 20
    done = subprocess.run(
        [sys.executable, "-m", "t5prep.cli", *line, "--workers", "1"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
        capture_output=True,
        text=True,
        env={"T5PREP_CACHE": str(tmp_path / "cache"), "OPENBLAS_NUM_THREADS": "1", "PATH": ""},
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("Error: There is not enough memory for this on this machine")
    assert not (tmp_path / "out" / "manifest.json").exists()
