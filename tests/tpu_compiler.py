"""Send the requests of `plan` to one process of the TPU compiler: its start takes longer than to compile a toy.

A test file that imports the fixture `one_compiler` sends its requests there. `compile_module` compiles any module, which `plan`
does not: it compiles only steps of the trainer.
"""

import base64
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from t5prep.planning import compiled, compiler
from t5prep.planning.chips import Chip
from t5prep.planning.compiled import Compiled


@pytest.fixture(scope="module", autouse=True)
def one_compiler() -> Iterator[None]:
    """Only a request that ends the compiler's process or saves its program has one of its own, as each has for the user."""
    process_per_request, processes = compiled._run, list[subprocess.Popen[str]]()

    def run(request: compiler.Request, *, topology: str, devices: int) -> dict[str, Any]:
        if request.get("dump") or request.get("save") or "T5PREP_WITHOUT" in os.environ:
            return process_per_request(request, topology=topology, devices=devices)
        if not processes:
            environment = {
                **os.environ,
                **compiler.ENVIRONMENT,
                "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
                "CUDA_VISIBLE_DEVICES": "",
            }
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
            processes.append(subprocess.Popen([sys.executable, __file__], env=environment, text=True, **pipes))
        stdin, stdout = processes[0].stdin, processes[0].stdout
        assert stdin
        assert stdout
        print(json.dumps([request, topology, devices]), file=stdin, flush=True)
        return dict(json.loads(stdout.readline()))

    with mock.patch.object(compiled, "_run", run):
        yield
    for process in processes:
        process.kill()
        process.wait()


def compile_module(module: bytes, *, chip: Chip, text_path: Path | None = None) -> Compiled:
    """Compile a serialized HloModuleProto for one device of a chip. The compiled text is written to `text_path`."""
    step = {"module": base64.b64encode(module).decode(), "text_path": str(text_path or "")}
    return compiled.compile_for({"step": step}, chip=chip, devices=1)


@contextlib.contextmanager
def compiling_a_module(step: dict) -> Iterator[None]:
    """Let the compiler of this process compile the module of `step` in place of a step of the trainer."""
    read_figures = compiler.read

    def module_of(step: dict, devices: list) -> tuple:
        """Return the program of the module, for the first device, and no figures."""
        import jax

        from t5prep.training.runtime.layout import arrange
        from t5prep.training.runtime.lowering import embed
        from t5prep.training.runtime.programs import Program

        program, layout = embed(base64.b64decode(step["module"]), platform="tpu"), arrange(devices[:1])
        shapes = [
            jax.ShapeDtypeStruct(argument.shape, argument.dtype, sharding=layout.everywhere)
            for argument in program.in_avals
        ]
        return Program("module", layout, program.call, tuple(shapes), layout.everywhere), {}

    def read(executable: object) -> dict:
        """Return the figures of the compiled program, and write its text."""
        if step["text_path"]:
            Path(step["text_path"]).write_text(executable.as_text())
        return read_figures(executable)

    with mock.patch.object(compiler, "step_of", module_of), mock.patch.object(compiler, "read", read):
        yield


def main() -> None:
    """Answer each line of stdin, a request with its topology and number of devices, by a line on stdout."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries print to stdout, which is for the answers only
    for line in sys.stdin:
        request, topology, devices = json.loads(line)
        step = request["step"]
        with compiling_a_module(step) if "module" in step else contextlib.nullcontext():
            print(json.dumps(compiler.compile_here(request, topology=topology, devices=devices)), file=out, flush=True)


if __name__ == "__main__":
    main()
