"""Run programs with PyTorch apart from TensorFlow: in one process, transformers' models register LLVM's options twice and die.

One process imports PyTorch and transformers, which takes longer than most programs. It forks for code that it is given.
"""

import atexit
import contextlib
import functools
import io
import json
import os
import subprocess
import sys
import traceback
from pathlib import Path

TESTS_FOLDER = Path(__file__).parent


def pytorch(program: str, *arguments: str | Path) -> None:
    """Run a file of this folder, which may import what lies beside it. Raises CalledProcessError."""
    code = f"import runpy; runpy.run_path({str(TESTS_FOLDER / program)!r}, run_name='__main__')"
    pytorch_code(code, *arguments)


def pytorch_code(code: str, *arguments: str | Path) -> str:
    """Run code whose `sys.argv` has the arguments, and return what it prints. Raises CalledProcessError."""
    server, request = _server(), {"code": code, "arguments": [str(argument) for argument in arguments]}
    assert server.stdin
    assert server.stdout
    server.stdin.write(json.dumps({**request, "folder": os.getcwd()}) + "\n")
    server.stdin.flush()
    answer = json.loads(server.stdout.readline())
    if answer["error"]:
        raise subprocess.CalledProcessError(1, request["arguments"], answer["output"], answer["error"])
    return str(answer["output"])


@functools.cache
def _server() -> subprocess.Popen[str]:
    """Start the process that forks; it ends with this one."""
    command = [sys.executable, __file__]  # of this folder, from which t5prep's command would import nothing
    environment = {**os.environ, "PYTHONSAFEPATH": "", "CUDA_VISIBLE_DEVICES": ""}
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True)
    atexit.register(server.kill)
    return server


def _serve() -> None:
    """Fork for each program of the standard input, and print its output, and its error if it fails, as a line of JSON."""
    import torch  # noqa: F401 - imported before any fork
    from transformers import BertForSequenceClassification, T5ForConditionalGeneration  # noqa: F401

    for line in sys.stdin:
        reading, writing = os.pipe()
        if child := os.fork():
            os.close(writing)
            with os.fdopen(reading, encoding="utf-8") as answer:
                text = answer.read()
            os.waitpid(child, 0)
            print(text or json.dumps({"output": "", "error": "The process ended without an answer."}), flush=True)
            continue
        os.dup2(2, 1)  # what libraries in C print is no answer
        output, error = io.StringIO(), ""
        request = json.loads(line)
        os.chdir(request["folder"])
        sys.argv = ["program", *request["arguments"]]
        try:
            with contextlib.redirect_stdout(output):
                exec(compile(request["code"], "program", "exec"), {"__name__": "__main__"})
        except BaseException:
            error = traceback.format_exc()
        with os.fdopen(writing, "w", encoding="utf-8") as answer:
            answer.write(json.dumps({"output": output.getvalue(), "error": error}))
        os._exit(0)


if __name__ == "__main__":
    _serve()
