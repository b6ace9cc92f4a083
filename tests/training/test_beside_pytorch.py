"""TensorFlow and PyTorch in one process, whichever is imported first."""

import os
import subprocess
import sys

import pytest

T5 = "from transformers import T5ForConditionalGeneration"  # it imports Triton
TRITON = "import triton._C.libtriton"


@pytest.mark.extra("torch", "triton")
@pytest.mark.slow
@pytest.mark.parametrize(
    "lines",
    [
        ("import t5prep", "t5prep.evaluate", T5),
        (TRITON, "import t5prep", "t5prep.evaluate"),
    ],
    ids=("t5prep first", "triton first"),
)
def test_a_t5_of_transformers_can_be_imported_beside_tensorflow(lines: tuple[str, ...]) -> None:
    """Triton's LLVM, loaded after TensorFlow's, ended the process with "inconsistency in registered CommandLine options"."""
    code = "; ".join((*lines, TRITON, "import tensorflow as tf", "print(float(tf.constant(2.0) * 2))"))
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr[-1000:]
    assert result.stdout.strip() == "4.0"
