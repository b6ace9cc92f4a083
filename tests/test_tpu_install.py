"""The documents' commands for a TPU VM, word for word, in a clean environment on a machine that has no TPU."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def _not_in_a_clone(folder: str, names: list[str]) -> set[str]:
    """Return which names of a folder a clone would not have."""
    untracked_names = {
        "build",
        "data",
        "runs",
        "t5prep.egg-info",
        *(name for name in names if name.startswith(".")),
    } - {".ci"}
    return ((untracked_names if Path(folder) == ROOT else set()) | {"__pycache__"}) & set(names)


@pytest.mark.slow
def test_the_commands_for_a_tpu_end_with_a_sentence_where_there_is_none(tmp_path: Path) -> None:
    """Minutes: it installs TensorFlow, jax and libtpu."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / "google-cloud.md").read_text(encoding="utf-8"), re.DOTALL)
    (block,) = [candidate for candidate in blocks if "doctor --tpu local" in candidate]
    if list(Path("/dev").glob("accel*")) or list(Path("/dev").glob("vfio/[0-9]*")):
        pytest.skip("this machine has a TPU")
    clone = tmp_path / "clone"
    shutil.copytree(ROOT, clone, ignore=_not_in_a_clone)
    python = tmp_path / "python"  # Ubuntu's python3, into which uv is installed
    subprocess.run([sys.executable, "-m", "venv", str(python)], check=True)
    environment = {**os.environ, "PATH": f"{python / 'bin'}:{os.environ['PATH']}"}
    for name in ("PYTHONPATH", "VIRTUAL_ENV"):
        environment.pop(name, None)
    doctor_result = subprocess.run(
        ["bash", "-c", block], cwd=clone, env=environment, capture_output=True, text=True, check=False
    )
    assert doctor_result.returncode == 1, doctor_result.stderr[-3000:]
    assert re.search(
        r"^wrong +TPU +no TPU chip on this machine \(libtpu 0\.0\.51\)$", doctor_result.stdout, re.MULTILINE
    )
    assert len(re.findall(r"^wrong", doctor_result.stdout, re.MULTILINE)) == 1, doctor_result.stdout
    assert "Traceback" not in doctor_result.stderr
    # And what is installed there trains nothing on a TPU, with one sentence.
    command = f"{clone}/.venv/bin/t5prep train --recipe tiny --data d --out o --tpu local"
    train_result = subprocess.run(
        command.split(), cwd=clone, env=environment, capture_output=True, text=True, check=False
    )
    assert (train_result.returncode, len(train_result.stderr.strip().splitlines())) == (1, 1), train_result.stderr
    assert train_result.stderr.startswith("Error: --tpu ")
    assert train_result.stderr.endswith("[device.missing-tpu]\n")
