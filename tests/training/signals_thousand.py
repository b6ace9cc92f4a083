"""Real signals at random moments against real processes of `train` and `predict`: none is lost.

    nice python tests/training/signals_thousand.py FOLDER [COUNT [SEED]]

Each process would run for hours. A signal that it gets ends it: within its first moments without a word (or with what Python
says before it has run a line of t5prep), later with one sentence; a training run may say first that it saves. A process that
still runs minutes later has lost the signal.
"""

import collections
import importlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

TESTS_FOLDER = Path(__file__).parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(TESTS_FOLDER))
    sys.path.insert(0, str(TESTS_FOLDER.parent))

# A busy machine takes its time until the step that is under way is done and saved.
LOST_AFTER_SECONDS = 600


def lay(folder: Path) -> None:
    """Write data, the shape of a model, a run, and rows without end."""
    import toy_runs
    import xla_flags

    os.environ["XLA_FLAGS"] = xla_flags.QUICK  # one device, as a user has
    folder.mkdir(parents=True, exist_ok=True)
    data, shape = toy_runs.classes(folder / "classes"), toy_runs.shape(folder / "shape")
    steps = {"weights": "random", "batch": 8, "steps": 1, "eval_every": 0, "tensorboard": "false", "dropout": 0.0}
    settings = [f"--set={name}={value}" for name, value in steps.items()]
    line = ["train", "--data", data, "--model", shape, "--out", str(folder / "run"), *settings]
    with (folder / "training.log").open("wb") as log:
        process = started(line, log.fileno(), fresh=False)
        assert os.waitpid(process, 0)[1] == 0, (folder / "training.log").read_text()
    row = json.dumps({"Id": "1", "Title": "a title", "Body": "and a body", "Y": "HQ"})
    (folder / "rows.jsonl").write_text(f"{row}\n" * 2_000_000)


def lines(folder: Path, out: Path) -> dict[str, list[str]]:
    """The command lines, which would run for hours."""
    steps = {
        "weights": "random",
        "batch": 8,
        "steps": 10_000_000,
        "save_every": 20_000,
        "eval_every": 0,
        "log_every": 5,
    }
    settings = [f"--set={name}={value}" for name, value in {**steps, "tensorboard": "false", "dropout": 0.0}.items()]
    data = ["--data", str(folder / "classes"), "--model", str(folder / "shape")]
    return {
        "train": ["train", *data, "--out", str(out / "run"), *settings],
        "predict": [
            "predict",
            str(folder / "rows.jsonl"),
            "--model",
            str(folder / "run"),
            "--out",
            str(out / "a.jsonl"),
        ],
    }


def started(line: list[str], stderr_descriptor: int, *, fresh: bool) -> int:
    """Start a command whose stderr goes to a file; return its process's id.

    Most are forked from this process, which has imported everything: a signal then more often comes while devices open, while
    programs are traced and loaded, and while there is work. A `fresh` one imports everything by itself.
    """
    if fresh:
        command = [sys.executable, "-m", "t5prep.cli", *line]
        return os.posix_spawn(
            command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, stderr_descriptor, 2)]
        )
    if child := os.fork():
        return child
    os.dup2(stderr_descriptor, 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    import lowered_programs

    from t5prep import cli

    lowered_programs.use_those_of_the_tests()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # as the command begins
    cli.main(line)
    raise AssertionError("a command ends with SystemExit")


def is_at_work(out: Path) -> bool:
    return any(
        path.exists() and path.stat().st_size for path in (out / "run" / "metrics.jsonl", out / ".unfinished-a.jsonl")
    )


def seconds_to_work(line: list[str], out: Path, *, fresh: bool) -> float:
    """Return how long a command takes until it is at its work."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as stderr_file:
        process = started(line, stderr_file.fileno(), fresh=fresh)
        while not is_at_work(out):
            time.sleep(0.01)
            if os.waitpid(process, os.WNOHANG)[0] or time.monotonic() > began + LOST_AFTER_SECONDS:
                stderr_file.seek(0)
                raise AssertionError(stderr_file.read().decode())
        seconds = time.monotonic() - began
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    return seconds


def once(line: list[str], delay: float, number: signal.Signals, *, fresh: bool) -> tuple[str, str]:
    """Send a signal so many seconds after the start; return how the process ended in a word, and what it said."""
    with tempfile.TemporaryFile() as file:
        process = started(line, file.fileno(), fresh=fresh)
        time.sleep(delay)
        os.kill(process, number)
        deadline = time.monotonic() + LOST_AFTER_SECONDS
        while not (wait_result := os.waitpid(process, os.WNOHANG))[0]:
            time.sleep(0.01)
            if time.monotonic() > deadline:
                os.kill(process, signal.SIGABRT)  # faulthandler says where it is
                os.waitpid(process, 0)
                file.seek(0)
                return "lost", file.read().decode(errors="replace")
        file.seek(0)
        output, code = file.read().decode(errors="replace"), os.waitstatus_to_exitcode(wait_result[1])
    if ("Traceback" in output or "Exception ignored" in output) and str(TESTS_FOLDER.parent / "t5prep") not in output:
        return "in Python's own start", output  # before the first line of t5prep
    if "Traceback" in output or "Exception ignored" in output:
        return "traceback", output
    if code == -number:
        return "without a word" if not output.strip() else "silently, at its work", output
    sentences = [line for line in output.splitlines() if line.startswith("Error: ")]
    return (f"one sentence, exit code {code}" if len(sentences) == 1 else f"no sentence, exit code {code}"), output


GOOD = ("without a word", "one sentence, exit code 1", "in Python's own start")


def check(folder: Path, count: int = 1000, seed: int = 0) -> tuple[collections.Counter[str], list[str]]:
    """Return how so many processes ended, and what those said that lost a signal or did not end with one sentence."""
    for module in (
        "t5prep.cli.train_command",
        "t5prep.cli.predict_commands",
        "t5prep.training.trainer",
        "t5prep.training.predict.predictions",
        "lowered_programs",
    ):
        importlib.import_module(module)
    if not (folder / "rows.jsonl").exists():
        lay(folder)
    draw, endings, wrong = random.Random(seed), collections.Counter[str](), list[str]()
    seconds: dict[tuple[str, bool], float] = {}
    for index in range(count):
        fresh, name = index % 20 > 17, ("train", "predict")[index % 2]
        if (name, fresh) not in seconds:
            with tempfile.TemporaryDirectory(dir=folder) as out:
                seconds[name, fresh] = seconds_to_work(lines(folder, Path(out))[name], Path(out), fresh=fresh)
        with tempfile.TemporaryDirectory(dir=folder) as out:
            early = fresh and draw.random() < 0.5
            delay = draw.uniform(0, 0.4) if early else draw.uniform(0, 1.2 * seconds[name, fresh])
            number = draw.choice((signal.SIGINT, signal.SIGINT, signal.SIGTERM))
            ending, output = once(lines(folder, Path(out))[name], delay, number, fresh=fresh)
        endings[ending] += 1
        if ending not in GOOD:
            wrong.append(
                f"{index}: {name}, {number.name} after {delay:.3f} s of {seconds[name, fresh]:.1f}: {ending}\n{output}"
            )
        (folder / "signals.log").write_text(f"{index + 1} signals: {dict(endings)}\n\n" + "\n\n".join(wrong) + "\n")
    return endings, wrong


if __name__ == "__main__":
    ways, bad = check(Path(sys.argv[1]), *map(int, sys.argv[2:4]))
    print(dict(ways), *bad, sep="\n\n")
    sys.exit(bool(bad))
