"""Run a program of tests/torch_*.py: transformers' models and TensorFlow in one process register LLVM's options twice and die."""

import os
import subprocess
import sys
from pathlib import Path


def pytorch(program: str, *arguments: str | Path) -> None:
    """Run a program of this folder; it imports what lies beside it, which t5prep's command forbids."""
    command = [sys.executable, Path(__file__).parent / program, *arguments]
    environment = {**os.environ, "PYTHONSAFEPATH": "", "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run(command, check=True, capture_output=True, env=environment)
