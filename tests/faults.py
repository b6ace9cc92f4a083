"""Faults on purpose: commands meet one fault of the disk or of a bucket, by a seed, and are then given again.

    nice python tests/faults.py FOLDER [--seeds 0:2000] [--only prepare,upload]

Always: either exit code 0 and the same bytes as without the fault, or one sentence and nothing false on the disk; and the
same command, given again, ends with the same bytes. A fault of the disk is a short write, ENOSPC, EIO (once, or from then
on), a call that fails, a kill between any two calls or in the middle of a write (tests/faults.c, which counts the calls of
Python, Arrow and TensorFlow alike). A bucket says 400, 404, 410, 429 or 503, cuts, spoils or loses an answer.

One process has imported everything, and forks for each command, so that a seed takes a moment.
"""

import argparse
import contextlib
import ctypes
import dataclasses
import importlib
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

TESTS_FOLDER = Path(__file__).parent
if __name__ == "__main__":
    sys.path.insert(0, str(TESTS_FOLDER))
    sys.path.insert(0, str(TESTS_FOLDER.parent))

import xla_flags  # noqa: E402 - lies beside this file

# The kinds of tests/faults.c.
KINDS = {"short write": 1, "disk full": 2, "error of the disk": 3, "kill": 4, "torn write": 5}
NETWORK = ("400", "404", "410", "429", "503", "cut", "lost", "spoil")
KILLED = -9
SECONDS = 300
# Of a struct state: count, at, kind, on, folder.
_STATE = struct.Struct("llii1024s")


def library(folder: Path) -> Path:
    """Compile tests/faults.c into a folder, once."""
    library_path = folder / "faults.so"
    if not library_path.exists():
        command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library_path), str(TESTS_FOLDER / "faults.c"), "-ldl"]
        subprocess.run(command, check=True, capture_output=True)
    return library_path


@dataclasses.dataclass(frozen=True)
class CommandResult:
    """How a command ended: its exit code (or -9), its output, and how many calls it made under the folder."""

    code: int
    output: str
    calls: int


class Commands:
    """Runs commands of t5prep under the library: a process that has imported everything forks for each."""

    def __init__(self, folder: Path, *, warm: Path, emulator: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        environment = {**os.environ, "LD_PRELOAD": str(library(folder))}
        environment |= {"T5PREP_FAULTS_WARM": str(warm)}
        environment |= {"XLA_FLAGS": xla_flags.QUICK, "XDG_STATE_HOME": str(folder / "state")}
        if emulator:
            environment["STORAGE_EMULATOR_HOST"] = emulator
        self._process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", str(TESTS_FOLDER / "faults.py"), "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(300)

    def __call__(
        self, line: list[str], work_folder: Path, *, fault_number: int = 0, kind: str = "kill", on: bool = False
    ) -> CommandResult:
        """Run a command with a fault of the `fault_number`th call under a folder; 0 is none."""
        work_folder.mkdir(parents=True, exist_ok=True)
        state = self._folder / "calls"
        state.write_bytes(_STATE.pack(0, fault_number, KINDS[kind], on, f"{work_folder}/".encode()))
        output_path = self._folder / "said"
        request = {"line": line, "state": str(state), "said": str(output_path), "cache": str(work_folder / "cache")}
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        return CommandResult(code, output_path.read_text(errors="replace"), _STATE.unpack(state.read_bytes())[0])


def serve() -> None:
    """Import everything, then fork for each command that is asked on standard input."""
    import t5prep.cli
    from pipelines import pool
    from t5prep.io import gcs, uploads

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    gcs.TIMEOUT_SECONDS = (5.0, 2.0)
    uploads.FIRST_WAIT_SECONDS, uploads.PATIENCE_SECONDS = 0.01, 20
    pool.begin_loading = lambda *_: None  # these sources are small: no worker is ever forked
    if warm := os.environ.get("T5PREP_FAULTS_WARM"):  # imported, loaded and compiled once, before the first fork
        with tempfile.TemporaryDirectory() as folder, contextlib.suppress(SystemExit):
            os.environ["T5PREP_CACHE"] = f"{folder}/cache"
            common = ["--source", warm, "--tokenizer", "sample:", "--input-length", "32", "--out", f"{folder}/data"]
            t5prep.cli.main(["prepare", "so_quality", *common])
    use = ctypes.CDLL(None).faults_use
    for text in sys.stdin:
        request = json.loads(text)
        # What an earlier command imported late is imported here, so that later ones need not.
        with contextlib.suppress(OSError):
            for name in Path(f"{request['said']}.modules").read_text().split():
                if name not in sys.modules:
                    with contextlib.suppress(Exception):
                        importlib.import_module(name)
        sys.stdout.flush()
        if child := os.fork():
            answers.write(f"{_waited(child)}\n")
            answers.flush()
            continue
        os.setsid()
        os.environ |= {"FAULTS_STATE": request["state"], "T5PREP_CACHE": request["cache"], "TMPDIR": request["cache"]}
        os.makedirs(request["cache"], exist_ok=True)
        tempfile.tempdir = request["cache"]
        if request["line"][0] in ("train", "eval"):  # the others need no TensorFlow
            importlib.import_module("lowered_programs").use_those_of_the_tests()
        output_descriptor = os.open(request["said"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output_descriptor, 1), os.dup2(output_descriptor, 2)
        use(request["state"].encode())
        code = 0
        try:
            t5prep.cli.main(request["line"])
        except SystemExit as error:
            code = int(error.code or 0)
        except BaseException:
            import traceback

            traceback.print_exc()
            code = 70
        sys.stdout.flush(), sys.stderr.flush()
        use(None)
        if code == 0:
            Path(f"{request['said']}.modules").write_text("\n".join(sys.modules))
        os._exit(code)


def _waited(child: int) -> int:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        finished_pid, status = os.waitpid(child, os.WNOHANG)
        if finished_pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.killpg(child, 9)
    os.waitpid(child, 0)
    return 124


# ──────────────────────────────────────────────────────────────────────────────────────────────────────── Scenarios ──


@dataclasses.dataclass(frozen=True)
class Scenario:
    """A command: `line` of the folder where it works (and of its bucket), `read_files` returns what it made, by name.

    `is_complete` says of these files whether they claim to be a whole result, which must then be right. `lay_inputs` writes
    what is in the folder beforehand; `bucket` says that it works with one.
    """

    name: str
    line: Callable[[Path, str], list[str]]
    read_files: Callable[[Path, str], dict[str, bytes]]
    is_complete: Callable[[dict[str, bytes]], bool]
    bucket: bool = False
    lay_inputs: Callable[[Path], None] = lambda folder: None
    training: bool = False


def _files(folder: Path) -> dict[str, bytes]:
    """The files under a folder; of a log, no lines that tell of time."""
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    if "metrics.jsonl" in files:
        timeless_lines = [line for line in files["metrics.jsonl"].splitlines(True) if b"tokens_per_second" not in line]
        files["metrics.jsonl"] = b"".join(timeless_lines)
    return files


def _objects(bucket: str) -> dict[str, bytes]:
    from t5prep.io import gcs

    return {name: gcs.read(f"{bucket}/{name}") for name in gcs.objects(bucket)}


def _has_manifest(files: dict[str, bytes]) -> bool:
    return "manifest.json" in files


def scenarios(good: Path) -> list[Scenario]:
    """All commands that meet faults; `good` has what they read."""

    def prepare(out: str, *extra_options: str) -> list[str]:
        common = ["--tokenizer", "sample:", "--input-length", "32", "--out", out]
        return ["prepare", "so_quality", "--source", str(good / "rows.csv"), *common, *extra_options]

    near = ("--dedup", "near", "--shards", "2", "--layout", "ragged")
    steps = {"weights": "random", "batch": 8, "steps": 6, "eval_every": 2, "log_every": 1, "tensorboard": "false"}
    steps |= {"dropout": 0.0, "keep": 2}
    run_settings = [f"--set={key}={value}" for key, value in steps.items()]

    of_good = ["--data", str(good / "data")]

    def data(folder: Path, _: str) -> dict[str, bytes]:
        return _files(folder / "data")

    def run(folder: Path, _: str) -> dict[str, bytes]:
        return {
            name: content
            for name, content in _files(folder / "run").items()
            if not name.startswith(("programs", ".lock"))
        }

    return [
        Scenario("prepare", lambda f, _: prepare(f"{f}/data"), data, _has_manifest),
        Scenario("prepare near", lambda f, _: prepare(f"{f}/data", *near), data, _has_manifest),
        Scenario(
            "prepare overwrites",
            lambda f, _: prepare(f"{f}/data", "--seed", "1", "--overwrite"),
            data,
            _has_manifest,
            lay_inputs=lambda f: shutil.copytree(good / "data", f / "data") and None,
        ),
        Scenario(
            "prepare to a bucket",
            lambda _, b: prepare(f"{b}/data"),
            lambda _, b: _objects(f"{b}/data"),
            _has_manifest,
            bucket=True,
        ),
        Scenario(
            "upload",
            lambda _, b: ["upload", str(good / "data"), f"{b}/data"],
            lambda _, b: _objects(f"{b}/data"),
            _has_manifest,
            bucket=True,
        ),
        *(
            Scenario(
                f"table {suffix}",
                lambda f, _, suffix=suffix: ["table", str(good / "data"), f"{f}/tables/t.{suffix}"],
                lambda f, _: _files(f / "tables"),
                bool,
            )
            for suffix in ("csv", "parquet")
        ),
        Scenario(
            "train",
            lambda f, _: ["train", *of_good, "--model", str(good / "shape"), "--out", f"{f}/run", *run_settings],
            run,
            lambda files: False,
            training=True,
        ),
        Scenario(
            "eval",
            lambda f, _: ["eval", *of_good, "--model", str(good / "run"), "--predictions", f"{f}/answers/eval.json"],
            lambda f, _: _files(f / "answers"),
            lambda files: "eval.json" in files,
            training=True,
        ),
    ]


def lay_good(folder: Path, *, training: bool) -> None:
    """Write what the commands read: rows, a dataset, and a run on it."""
    import small_corpora

    folder.mkdir(parents=True)
    small_corpora.write_csv(
        folder / "rows.csv", [*small_corpora.questions(90, words=8), *small_corpora.questions(3, words=8)]
    )
    small_corpora.prepared(folder / "rows.csv", folder / "data", tokenizer="sample:", input_length=32, shards=2)
    if training:
        import toy_runs as toys

        import t5prep

        shape = toys.shape(folder / "shape")
        chosen = toys.config(str(folder / "data"), shape, folder / "run", steps=2, eval_every=2)
        values = {name: value for name, value in vars(chosen).items() if name not in ("data", "model", "out")}
        t5prep.train(data=str(folder / "data"), model=shape, out=str(folder / "run"), settings=values)


# ──────────────────────────────────────────────────────────────────────────────────────────────────────────── Seeds ──


class Harness:
    """Runs seeds of scenarios in a folder; with a front before an emulator, those of buckets too."""

    def __init__(self, folder: Path, *, training: bool, front: Any = None) -> None:
        self.folder, self.front = folder, front
        self.good = folder / "good"
        if not self.good.exists():
            lay_good(self.good, training=training)
        address = f"http://127.0.0.1:{front.port}" if front else ""
        self.run = Commands(folder / "server", emulator=address, warm=self.good / "rows.csv")
        self.codes: list[int] = []  # how the commands ended that met a fault
        self._golden: dict[str, tuple[dict[str, bytes], int, int]] = {}

    def scenarios(self) -> list[Scenario]:
        return [scenario for scenario in scenarios(self.good) if self.front or not scenario.bucket]

    @contextlib.contextmanager
    def _reset_folder(self, scenario: Scenario) -> Iterator[tuple[Path, str]]:
        """A fresh folder with what lies there before, and a fresh bucket."""
        work_folder, bucket = self.folder / "work", ""
        shutil.rmtree(work_folder, ignore_errors=True)
        work_folder.mkdir()
        scenario.lay_inputs(work_folder)
        if (programs := self.folder / "programs" / scenario.name).exists():
            shutil.copytree(programs, work_folder / "cache" / "programs")
        if scenario.bucket:
            from servers.gcs_emulator import make_bucket

            name = f"faults-{uuid.uuid4().hex[:12]}"
            make_bucket(self.front.emulator, name)
            bucket = f"gs://{name}"
        yield work_folder, bucket

    def golden(self, scenario: Scenario) -> tuple[dict[str, bytes], int, int]:
        """What the command makes without faults, how many calls it makes, and how many requests."""
        if scenario.name not in self._golden:
            with self._reset_folder(scenario) as (work_folder, bucket):
                earlier_requests = len(self.front.requests) if self.front else 0
                result = self.run(scenario.line(work_folder, bucket), work_folder)
                assert result.code == 0, result.output
                requests = len(self.front.requests) - earlier_requests if self.front else 0
                files = scenario.read_files(work_folder, bucket)
                assert files
                if (programs := work_folder / "cache" / "programs").exists():  # compiled once for all seeds
                    shutil.copytree(programs, self.folder / "programs" / scenario.name, dirs_exist_ok=True)
                self._golden[scenario.name] = self._without_place(files, work_folder, bucket), result.calls, requests
        return self._golden[scenario.name]

    def _without_place(self, files: dict[str, bytes], work_folder: Path, bucket: str) -> dict[str, bytes]:
        """The same bytes, whatever the bucket's name."""
        return {n: c.replace(bucket.encode(), b"gs://BUCKET") if bucket else c for n, c in files.items()}

    def seed(self, scenario: Scenario, number: int) -> str:
        """Run one seed; return what is wrong, or ""."""
        draw = random.Random(f"{scenario.name} {number}")
        expected, calls, requests = self.golden(scenario)
        fault, on, fault_number = draw.choice(list(KINDS)), draw.random() < 0.4, draw.randint(1, max(calls, 1))
        of_network = scenario.bucket and draw.random() < 0.7
        description = f"{scenario.name} {number}: "
        with self._reset_folder(scenario) as (work_folder, bucket):
            initial_files = self._without_place(scenario.read_files(work_folder, bucket), work_folder, bucket)
            line = scenario.line(work_folder, bucket)
            if of_network:
                fault, fault_number = draw.choice([*NETWORK, "kill"]), draw.randint(1, requests)
                max_faults = draw.choice((1, 1, 3))
                description += f"{fault} at request {fault_number} of {requests}, {max_faults} times"
                first = self._with_front(line, work_folder, fault, fault_number, max_faults)
            else:
                on &= fault in ("disk full", "error of the disk")
                description += f"{fault} at call {fault_number} of {calls}{' and from then on' if on else ''}"
                first = self.run(line, work_folder, fault_number=fault_number, kind=fault, on=on)
            self.codes.append(first.code)
            files = self._without_place(scenario.read_files(work_folder, bucket), work_folder, bucket)
            if wrong := _wrong_end(first, killed=fault in ("kill", "torn write")):
                return f"{description}\n{wrong}"
            # What could not be removed is marked as unfinished, and the next run removes it.
            finished_files = {name: content for name, content in files.items() if not name.startswith(".unfinished-")}
            if first.code == 0 and finished_files != expected:
                return f"{description}\nexit code 0, and other bytes: {_differ(files, expected)}\n{first.output}"
            claims = {name: content for name, content in files.items() if name in expected}
            if (
                scenario.is_complete(files)
                and claims != expected
                and any(initial_files.get(n) != c for n, c in finished_files.items())
            ):
                return f"{description}\nsomething false is there: {_differ(files, expected)}\n{first.output}"
            retry_result = self.run(line, work_folder)
            files = self._without_place(scenario.read_files(work_folder, bucket), work_folder, bucket)
            if retry_result.code:
                return f"{description}\n{first.output}\n--- given again: exit code {retry_result.code}\n{retry_result.output}"
            if files != expected:
                difference = f"other bytes: {_differ(files, expected)}"
                return f"{description}\n{first.output}\n--- given again: {difference}\n{retry_result.output}"
        return ""

    def _with_front(
        self, line: list[str], work_folder: Path, fault: str, fault_number: int, max_faults: int
    ) -> CommandResult:
        """Run a command whose `fault_number`th request meets a fault, and the next ones of that kind, `max_faults` in all."""
        turns, met, kinds = [0], [0], [""]

        def meets(request: Any) -> str:
            turns[0] += 1
            if turns[0] < fault_number or met[0] == max_faults or (kinds[0] and request.kind != kinds[0]):
                return ""
            met[0] += 1
            kinds[0] = request.kind
            return "stop" if fault == "kill" else fault

        if fault == "kill":
            return self._killed_at(line, work_folder, fault_number)
        self.front.fault = meets
        try:
            return self.run(line, work_folder)
        finally:
            self.front.fault = lambda request: ""

    def _killed_at(self, line: list[str], work_folder: Path, fault_number: int) -> CommandResult:
        """Run a command that is killed when its `fault_number`th request arrives."""
        state = self.folder / "server" / "calls"
        turns = [0]

        def kill(_: Any) -> str:
            turns[0] += 1
            if turns[0] == fault_number:
                for entry in Path("/proc").glob("[0-9]*/stat"):
                    with contextlib.suppress(OSError, IndexError):
                        if int(entry.read_text().rpartition(")")[2].split()[1]) == self.run._process.pid:
                            os.kill(int(entry.parent.name), 9)
            return ""

        assert state
        self.front.fault = kill
        try:
            return self.run(line, work_folder)
        finally:
            self.front.fault = lambda request: ""


def _wrong_end(result: CommandResult, *, killed: bool) -> str:
    """What is wrong with how a command ended; "" for exit code 0, for one sentence, and for a kill that was meant."""
    if result.code == 0 or (killed and result.code == KILLED):
        return ""
    sentences = [line for line in result.output.splitlines() if line.startswith("Error: ")]
    if result.code != 1 or len(sentences) != 1 or "Traceback" in result.output:
        return f"exit code {result.code}\n{result.output}"
    return ""


def _differ(files: dict[str, bytes], expected: dict[str, bytes]) -> str:
    names = sorted(files.keys() | expected.keys())
    differences = {
        name: "missing" if name not in files else "too much" if name not in expected else "differs"
        for name in names
        if files.get(name) != expected.get(name)
    }
    return ", ".join(f"{name} {difference}" for name, difference in differences.items())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--seeds", default="0:2000")
    parser.add_argument("--only", default="")
    parser.add_argument("--serve", action="store_true")
    arguments = parser.parse_args()
    if arguments.serve:
        serve()
        return
    from servers.gcs_emulator import Front, running

    first, last = map(int, arguments.seeds.split(":"))
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with running() as emulator:
        front = Front(emulator)
        os.environ["STORAGE_EMULATOR_HOST"] = f"http://127.0.0.1:{front.port}"
        scenario_names = arguments.only.split(",") if arguments.only else []
        training = not scenario_names or any(name in ("train", "eval") for name in scenario_names)
        harness = Harness(arguments.folder, training=training, front=front)
        chosen = [
            candidate for candidate in harness.scenarios() if not scenario_names or candidate.name in scenario_names
        ]
        for number in range(first, last):
            scenario = chosen[number % len(chosen)]
            wrong = harness.seed(scenario, number)
            with open(arguments.folder / "seeds.log", "a", encoding="utf-8") as log:
                log.write(f"{scenario.name} {number} {'WRONG' if wrong else 'ok'} {harness.codes[-1]}\n")
                if wrong:
                    log.write(f"{wrong}\n\n")
        harness.run.close()


if __name__ == "__main__":
    main()
