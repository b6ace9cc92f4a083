"""Tests of planning ask one process of the TPU compiler: its start takes longer than to compile a toy."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from t5prep.planning import compiled
from t5prep.planning.compiler import ENVIRONMENT, Request

COMPILER = """
import json, os, sys
from t5prep.planning import compiler
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
for line in sys.stdin:
    request, topology, devices = json.loads(line)
    print(json.dumps(compiler.compile_here(request, topology=topology, devices=devices)), file=out, flush=True)
"""


@pytest.fixture(scope="session", autouse=True)
def _one_compiler() -> Iterator[None]:
    """Only a request that ends the compiler's process or saves its program has one of its own, as each has for the user."""
    own_process, processes = compiled._run, list[subprocess.Popen[str]]()

    def run(request: Request, *, topology: str, devices: int) -> dict[str, Any]:
        if request.get("dump") or request.get("save") or "T5PREP_WITHOUT" in os.environ:
            return own_process(request, topology=topology, devices=devices)
        if not processes:
            environment = {**os.environ, **ENVIRONMENT, "ALLOW_MULTIPLE_LIBTPU_LOAD": "1", "CUDA_VISIBLE_DEVICES": ""}
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
            processes.append(subprocess.Popen([sys.executable, "-c", COMPILER], env=environment, text=True, **pipes))
        stdin, stdout = processes[0].stdin, processes[0].stdout
        assert stdin
        assert stdout
        print(json.dumps([request, topology, devices]), file=stdin, flush=True)
        return dict(json.loads(stdout.readline()))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "_run", run)
        yield
    for process in processes:
        process.kill()
        process.wait()
