"""Compile a serialized HloModuleProto by the process of `plan`, which itself compiles only steps of the trainer.

`compile_module` runs this module in place of `t5prep.planning.compiler`.
"""

import base64
from pathlib import Path
from unittest import mock

from t5prep.planning import compiled, compiler
from t5prep.planning.chips import Chip
from t5prep.planning.compiled import Compiled


def compile_module(module: bytes, *, chip: Chip, text_path: Path | None = None) -> Compiled:
    """Compile a module for one device of a chip. The compiled text is written to `text_path`."""
    step = {"module": base64.b64encode(module).decode(), "text_path": str(text_path or "")}
    with mock.patch.object(compiled, "COMPILER", __name__):
        return compiled.compile_for({"step": step}, chip=chip, devices=1)


def main() -> None:
    """Answer a request as `compiler.main` does, for a module in place of a step."""
    read_figures = compiler.read
    text_path = ""

    def module_of(step: dict, devices: list) -> tuple:
        """Return the program of the request's module, for the first device, and no figures."""
        import jax

        from t5prep.training.runtime.layout import arrange
        from t5prep.training.runtime.lowering import embed
        from t5prep.training.runtime.programs import Program

        nonlocal text_path
        text_path = step["text_path"]
        program, layout = embed(base64.b64decode(step["module"]), platform="tpu"), arrange(devices[:1])
        shapes = [
            jax.ShapeDtypeStruct(argument.shape, argument.dtype, sharding=layout.everywhere)
            for argument in program.in_avals
        ]
        return Program("module", layout, program.call, tuple(shapes), layout.everywhere), {}

    def read(executable: object) -> dict:
        """Return the figures of the compiled program, and write its text."""
        if text_path:
            Path(text_path).write_text(executable.as_text())
        return read_figures(executable)

    with mock.patch.object(compiler, "step_of", module_of), mock.patch.object(compiler, "read", read):
        compiler.main()


if __name__ == "__main__":
    main()
