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

HERE = Path(__file__).parent
if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    sys.path.insert(0, str(HERE.parent))

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
    made = folder / "faults.so"
    if not made.exists():
        command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(made), str(HERE / "faults.c"), "-ldl"]
        subprocess.run(command, check=True, capture_output=True)
    return made


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code (or -9), what it said, and how many calls it made under the folder."""

    code: int
    said: str
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
            [sys.executable, "-X", "faulthandler", str(HERE / "faults.py"), "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(300)

    def __call__(self, line: list[str], under: Path, *, at: int = 0, kind: str = "kill", on: bool = False) -> Ended:
        """Run a command with a fault of the `at`th call under a folder; 0 is none."""
        under.mkdir(parents=True, exist_ok=True)
        state = self._folder / "calls"
        state.write_bytes(_STATE.pack(0, at, KINDS[kind], on, f"{under}/".encode()))
        said = self._folder / "said"
        asked = {"line": line, "state": str(state), "said": str(said), "cache": str(under / "cache")}
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        return Ended(code, said.read_text(errors="replace"), _STATE.unpack(state.read_bytes())[0])


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
        asked = json.loads(text)
        # What an earlier command imported late is imported here, so that later ones need not.
        with contextlib.suppress(OSError):
            for name in Path(f"{asked['said']}.modules").read_text().split():
                if name not in sys.modules:
                    with contextlib.suppress(Exception):
                        importlib.import_module(name)
        sys.stdout.flush()
        if child := os.fork():
            answers.write(f"{_waited(child)}\n")
            answers.flush()
            continue
        os.setsid()
        os.environ |= {"FAULTS_STATE": asked["state"], "T5PREP_CACHE": asked["cache"], "TMPDIR": asked["cache"]}
        os.makedirs(asked["cache"], exist_ok=True)
        tempfile.tempdir = asked["cache"]
        said = os.open(asked["said"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(said, 1), os.dup2(said, 2)
        use(asked["state"].encode())
        code = 0
        try:
            t5prep.cli.main(asked["line"])
        except SystemExit as error:
            code = int(error.code or 0)
        except BaseException:
            import traceback

            traceback.print_exc()
            code = 70
        sys.stdout.flush(), sys.stderr.flush()
        use(None)
        if code == 0:
            Path(f"{asked['said']}.modules").write_text("\n".join(sys.modules))
        os._exit(code)


def _waited(child: int) -> int:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.killpg(child, 9)
    os.waitpid(child, 0)
    return 124


# ──────────────────────────────────────────────────────────────────────────────────────────────────────── Scenarios ──


@dataclasses.dataclass(frozen=True)
class Scenario:
    """A command: `line` of the folder where it works (and of its bucket), `found` what it made, by name.

    `whole` says of what is found whether it claims to be a whole result, which must then be right. `before` is laid into the
    folder before; `bucket` says that it works with one.
    """

    name: str
    line: Callable[[Path, str], list[str]]
    found: Callable[[Path, str], dict[str, bytes]]
    whole: Callable[[dict[str, bytes]], bool]
    bucket: bool = False
    before: Callable[[Path], None] = lambda folder: None
    training: bool = False


def _files(folder: Path) -> dict[str, bytes]:
    """The files under a folder; of a log, no lines that tell of time."""
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    if "metrics.jsonl" in found:
        kept = [line for line in found["metrics.jsonl"].splitlines(True) if b"tokens_per_second" not in line]
        found["metrics.jsonl"] = b"".join(kept)
    return found


def _objects(bucket: str) -> dict[str, bytes]:
    from t5prep.io import gcs

    return {name: gcs.read(f"{bucket}/{name}") for name in gcs.objects(bucket)}


def _has_manifest(found: dict[str, bytes]) -> bool:
    return "manifest.json" in found


def scenarios(good: Path) -> list[Scenario]:
    """All commands that meet faults; `good` has what they read."""

    def prepare(out: str, *more: str) -> list[str]:
        common = ["--tokenizer", "sample:", "--input-length", "32", "--out", out]
        return ["prepare", "so_quality", "--source", str(good / "rows.csv"), *common, *more]

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
            before=lambda f: shutil.copytree(good / "data", f / "data") and None,
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
        Scenario(
            "train",
            lambda f, _: ["train", *of_good, "--model", str(good / "shape"), "--out", f"{f}/run", *run_settings],
            run,
            lambda found: False,
            training=True,
        ),
        Scenario(
            "eval",
            lambda f, _: ["eval", *of_good, "--model", str(good / "run"), "--predictions", f"{f}/answers/eval.json"],
            lambda f, _: _files(f / "answers"),
            lambda found: "eval.json" in found,
            training=True,
        ),
    ]


def lay_good(folder: Path, *, training: bool) -> None:
    """Write what the commands read: rows, a dataset, and a run on it."""
    import preparing

    folder.mkdir(parents=True)
    preparing.write_csv(folder / "rows.csv", [*preparing.questions(90, words=8), *preparing.questions(3, words=8)])
    preparing.prepared(folder / "rows.csv", folder / "data", tokenizer="sample:", input_length=32, shards=2)
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
        return [one for one in scenarios(self.good) if self.front or not one.bucket]

    @contextlib.contextmanager
    def _place(self, scenario: Scenario) -> Iterator[tuple[Path, str]]:
        """A fresh folder with what lies there before, and a fresh bucket."""
        place, bucket = self.folder / "work", ""
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        scenario.before(place)
        if (programs := self.folder / "programs" / scenario.name).exists():
            shutil.copytree(programs, place / "cache" / "programs")
        if scenario.bucket:
            from servers.gcs_emulator import make_bucket

            name = f"faults-{uuid.uuid4().hex[:12]}"
            make_bucket(self.front.emulator, name)
            bucket = f"gs://{name}"
        yield place, bucket

    def golden(self, scenario: Scenario) -> tuple[dict[str, bytes], int, int]:
        """What the command makes without faults, how many calls it makes, and how many requests."""
        if scenario.name not in self._golden:
            with self._place(scenario) as (place, bucket):
                asked = len(self.front.seen) if self.front else 0
                ended = self.run(scenario.line(place, bucket), place)
                assert ended.code == 0, ended.said
                requests = len(self.front.seen) - asked if self.front else 0
                made = scenario.found(place, bucket)
                assert made
                if (programs := place / "cache" / "programs").exists():  # compiled once for all seeds
                    shutil.copytree(programs, self.folder / "programs" / scenario.name, dirs_exist_ok=True)
                self._golden[scenario.name] = self._without_place(made, place, bucket), ended.calls, requests
        return self._golden[scenario.name]

    def _without_place(self, found: dict[str, bytes], place: Path, bucket: str) -> dict[str, bytes]:
        """The same bytes, whatever the bucket's name."""
        return {n: c.replace(bucket.encode(), b"gs://BUCKET") if bucket else c for n, c in found.items()}

    def seed(self, scenario: Scenario, number: int) -> str:
        """Run one seed; return what is wrong, or ""."""
        draw = random.Random(f"{scenario.name} {number}")
        expected, calls, requests = self.golden(scenario)
        fault, on, at = draw.choice(list(KINDS)), draw.random() < 0.4, draw.randint(1, max(calls, 1))
        of_network = scenario.bucket and draw.random() < 0.7
        told = f"{scenario.name} {number}: "
        with self._place(scenario) as (place, bucket):
            before = self._without_place(scenario.found(place, bucket), place, bucket)
            line = scenario.line(place, bucket)
            if of_network:
                fault, at = draw.choice([*NETWORK, "kill"]), draw.randint(1, requests)
                most = draw.choice((1, 1, 3))
                told += f"{fault} at request {at} of {requests}, {most} times"
                first = self._with_front(line, place, fault, at, most)
            else:
                on &= fault in ("disk full", "error of the disk")
                told += f"{fault} at call {at} of {calls}{' and from then on' if on else ''}"
                first = self.run(line, place, at=at, kind=fault, on=on)
            self.codes.append(first.code)
            found = self._without_place(scenario.found(place, bucket), place, bucket)
            if wrong := _wrong_end(first, killed=fault in ("kill", "torn write")):
                return f"{told}\n{wrong}"
            # What could not be removed is marked as unfinished, and the next run removes it.
            kept = {name: content for name, content in found.items() if not name.startswith(".unfinished-")}
            if first.code == 0 and kept != expected:
                return f"{told}\nexit code 0, and other bytes: {_differ(found, expected)}\n{first.said}"
            claims = {name: content for name, content in found.items() if name in expected}
            if scenario.whole(found) and claims != expected and any(before.get(n) != c for n, c in kept.items()):
                return f"{told}\nsomething false is there: {_differ(found, expected)}\n{first.said}"
            again = self.run(line, place)
            found = self._without_place(scenario.found(place, bucket), place, bucket)
            if again.code:
                return f"{told}\n{first.said}\n--- given again: exit code {again.code}\n{again.said}"
            if found != expected:
                return f"{told}\n{first.said}\n--- given again: other bytes: {_differ(found, expected)}\n{again.said}"
        return ""

    def _with_front(self, line: list[str], place: Path, fault: str, at: int, most: int) -> Ended:
        """Run a command whose `at`th request meets a fault, and the next ones of that kind, `most` in all."""
        turns, met, kinds = [0], [0], [""]

        def meets(seen: Any) -> str:
            turns[0] += 1
            if turns[0] < at or met[0] == most or (kinds[0] and seen.kind != kinds[0]):
                return ""
            met[0] += 1
            kinds[0] = seen.kind
            return "stop" if fault == "kill" else fault

        if fault == "kill":
            return self._killed_at(line, place, at)
        self.front.fault = meets
        try:
            return self.run(line, place)
        finally:
            self.front.fault = lambda seen: ""

    def _killed_at(self, line: list[str], place: Path, at: int) -> Ended:
        """Run a command that is killed when its `at`th request arrives."""
        state = self.folder / "server" / "calls"
        turns = [0]

        def kill(_: Any) -> str:
            turns[0] += 1
            if turns[0] == at:
                for entry in Path("/proc").glob("[0-9]*/stat"):
                    with contextlib.suppress(OSError, IndexError):
                        if int(entry.read_text().rpartition(")")[2].split()[1]) == self.run._process.pid:
                            os.kill(int(entry.parent.name), 9)
            return ""

        assert state
        self.front.fault = kill
        try:
            return self.run(line, place)
        finally:
            self.front.fault = lambda seen: ""


def _wrong_end(ended: Ended, *, killed: bool) -> str:
    """What is wrong with how a command ended; "" for exit code 0, for one sentence, and for a kill that was meant."""
    if ended.code == 0 or (killed and ended.code == KILLED):
        return ""
    sentences = [line for line in ended.said.splitlines() if line.startswith("Error: ")]
    if ended.code != 1 or len(sentences) != 1 or "Traceback" in ended.said:
        return f"exit code {ended.code}\n{ended.said}"
    return ""


def _differ(found: dict[str, bytes], expected: dict[str, bytes]) -> str:
    names = sorted(found.keys() | expected.keys())
    said = {
        name: "missing" if name not in found else "too much" if name not in expected else "differs"
        for name in names
        if found.get(name) != expected.get(name)
    }
    return ", ".join(f"{name} {how}" for name, how in said.items())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--seeds", default="0:2000")
    parser.add_argument("--only", default="")
    parser.add_argument("--serve", action="store_true")
    given = parser.parse_args()
    if given.serve:
        serve()
        return
    from servers.gcs_emulator import Front, running

    first, last = map(int, given.seeds.split(":"))
    given.folder.mkdir(parents=True, exist_ok=True)
    with running() as emulator:
        front = Front(emulator)
        os.environ["STORAGE_EMULATOR_HOST"] = f"http://127.0.0.1:{front.port}"
        wanted = given.only.split(",") if given.only else []
        training = not wanted or any(name in ("train", "eval") for name in wanted)
        harness = Harness(given.folder, training=training, front=front)
        chosen = [one for one in harness.scenarios() if not wanted or one.name in wanted]
        for number in range(first, last):
            scenario = chosen[number % len(chosen)]
            wrong = harness.seed(scenario, number)
            with open(given.folder / "seeds.log", "a", encoding="utf-8") as log:
                log.write(f"{scenario.name} {number} {'WRONG' if wrong else 'ok'} {harness.codes[-1]}\n")
                if wrong:
                    log.write(f"{wrong}\n\n")
        harness.run.close()


if __name__ == "__main__":
    main()
