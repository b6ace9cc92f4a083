"""Any JSON with a right digest, and any command: an answer or one sentence, in little memory and time.

More seeds by hand: `T5PREP_SEEDS=20000 pytest -m fuzz tests/dataset/test_forged_manifests.py` takes about an hour.
"""

import contextlib
import copy
import json
import random
import re
import shutil
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from raised import raises
from random_seeds import seeds
from small_corpora import prepared, questions, write_csv

import t5prep
from t5prep.cli import main
from t5prep.dataset import manifest, manifest_checks
from t5prep.errors import DatasetError, T5prepError
from t5prep.report import explore

SEEDS = seeds(8)
SECONDS, MEMORY = 10.0, 256 << 20
Facts = dict[str, Any]
LONG = "x" * 300_000
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 3, 255, 256, 2**31, 2**32, 2**53, 2**62, 2**63 - 1, -(2**63), 2**64, 10**400),
    *(0.5, -0.0, 1e308, float("nan"), float("inf")),
    *(
        "",
        "a",
        "../../x",
        "/etc/passwd",
        "..",
        "a\\b",
        "x\0y",
        "x\ny",
        "\x1b[31mred",
        "\u202e evil",
        "<script>alert(1)</script>\"'",
    ),
    *("=cmd|' /C calc'!A0", "\ud800", "é" * 200, LONG, "ab", "hex", "punycode", "=", "(a+)+$", "{", "{0.__class__}"),
    *(
        [],
        {},
        [None],
        [[]],
        {"a": 1},
        [1, 2, 3],
        ["<b>"],
        [[1, 2]],
        [[-5, -5, 3]],
        [[2**62, 2**62]],
        [[2**40, 2**40, 1]],
    ),
    *(
        "manifest.json",
        "train.tfrecord-00000-of-00001",
        "rejected.jsonl@256",
        "rejected.jsonl@0",
        "text",
        "class",
        "tags",
    ),
    *("labels", "number", "tokens", "packed", "ragged", "padded", "none", "near", "exact", "/dev/zero", "hf:evil/evil"),
    *("http://127.0.0.1:9/x", "sample:"),
)
KINDS = ("padded", "packed", "near")


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepare one dataset of each of KINDS; one row of each makes no example."""
    folder = tmp_path_factory.mktemp("forged")
    rows = questions(60, words=12)
    rows[20] = rows[21] | {"Id": "twin", "Body": rows[21]["Body"] + " more"}
    source = write_csv(folder / "a.csv", [*rows, rows[0] | {"Id": "bad", "Y": "?"}])
    options: dict[str, dict[str, Any]] = {"padded": {}, "packed": {"layout": "packed"}, "near": {"dedup": "near"}}
    for name in KINDS:
        prepared(source, folder / name, tokenizer="sample:", input_length=32, **options[name])
    return folder


def places(facts: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the place of each value of some JSON, of lists the first two."""
    if above:
        yield above
    items = facts.items() if isinstance(facts, dict) else enumerate(facts[:2]) if isinstance(facts, list) else ()
    for name, value in items:
        yield from places(value, (*above, name))


def changed(facts: Facts, draw: random.Random) -> Facts:
    """Return a manifest's facts with some values changed, removed, renamed or doubled, and the digest of what they are then."""
    facts = copy.deepcopy(facts)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        *above, name = draw.choice([key_path for key_path in places(facts) if key_path != ("digest",)])
        holder = facts
        for step in above:
            holder = holder[step]
        value, kind = holder[name], draw.random()
        if kind < 0.08:
            del holder[name]
        elif kind < 0.16 and isinstance(holder, dict):
            holder[
                draw.choice([candidate for candidate in VALUES if isinstance(candidate, str) and len(candidate) < 1000])
            ] = holder.pop(name)
        elif kind < 0.3 and isinstance(value, list) and value:
            value.append(copy.deepcopy(draw.choice(value)))
        elif kind < 0.4 and type(value) in (int, float):
            holder[name] = value + draw.choice((-1, 1, 2, -2, 8, 100))
        else:
            same_type_values = (
                [candidate for candidate in VALUES if type(candidate) is type(value)] if draw.random() < 0.6 else []
            )
            holder[name] = copy.deepcopy(draw.choice(same_type_values or VALUES))
    return facts


def seal(facts: Facts) -> str:
    """Return the JSON of a manifest with the digest that it should have."""
    with contextlib.suppress(Exception):
        facts["digest"] = manifest._digest(facts)
    return json.dumps(facts)


def commands(data: Path, out: Path) -> Iterator[list[str]]:
    """Yield the commands that read a dataset."""
    dataset, reference = str(data), str(data.with_name("reference"))
    yield from (
        ["verify", dataset],
        ["inspect", dataset, "-n", "2"],
        ["inspect", dataset, "--split", "validation", "-n", "2", "--json"],
    )
    yield from (["table", dataset, str(out / "t.csv")], ["table", dataset, str(out / "t.parquet")])
    yield from (
        ["table", dataset, "--rejected", str(out / "r.jsonl")],
        ["report", dataset, "--out", str(out / "r.html")],
    )
    yield from (["why", "1005", "--data", dataset], ["why", "a.csv:3", "--data", dataset])
    yield from (["diff", dataset, reference], ["diff", reference, dataset])


def batches(data: Path) -> None:
    """Read batches for a trainer."""
    iterator = iter(t5prep.train_batches(str(data), global_batch=4, seed=0, start_step=3))
    for _ in range(2):
        next(iterator)


def look(data: Path) -> None:
    """Make the pages of `explore`."""
    explorer = explore.Explorer(str(data))
    for view in ("records", "rejected"):
        for row in explorer.page_rows(explore.RowQuery(view=view))[:2] if explorer.counts[view] else ():
            explorer.trace(str(row["id"]))
            if view == "records":
                explorer.pieces(row)


class TooSlowError(BaseException):
    """Say that a command takes longer than SECONDS."""


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Fail if the block takes too long or too much memory."""

    def stop(*_: object) -> None:
        raise TooSlowError

    previous_handler = signal.signal(signal.SIGALRM, stop)
    _reset_peak()
    at_first, began = _peak(), time.process_time()
    signal.setitimer(signal.ITIMER_REAL, 12 * SECONDS)  # by the clock, for a machine that does other things too
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous_handler)
    assert time.process_time() - began < SECONDS
    assert _peak() - at_first < MEMORY


def _reset_peak() -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak() -> int:
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    match = re.search(r"VmHWM:\s+(\d+)", status)
    return int(match[1]) << 10 if match else 0


def fault(data: Path, out: Path) -> str:
    """Return what is wrong with how the commands take a manifest; "" if each answers, or says one sentence."""
    try:
        with bounded():
            manifest.load(data)
        lines = list(commands(data, out))
    except T5prepError as error:
        if "\n" in str(error):
            return f"a sentence of several lines: {error}"
        lines = [["verify", str(data)]]
    for line in lines:
        with bounded():
            result = CliRunner().invoke(main, line)
        if not isinstance(result.exception, SystemExit | None):
            return f"{line}: {''.join(traceback.format_exception(result.exception))}"
        if result.exit_code not in (0, 1) or "\x1b" in result.output:
            return f"{line}: exit code {result.exit_code}: {result.output!r:.2000}"
        error_lines = result.stderr.strip().splitlines()
        if result.exit_code and line[0] != "diff" and not 1 <= len(error_lines) <= 2:
            return f"{line}: {len(error_lines)} lines: {error_lines}"
        if len(result.stderr) > 5000:
            return f"{line}: a sentence of {len(result.stderr):,} characters"
    for read in (batches, look) if len(lines) > 1 else ():
        with bounded(), contextlib.suppress(T5prepError, StopIteration):
            read(data)
    return ""


@pytest.mark.fuzz
def test_drawn_changes_of_a_manifest(datasets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("T5PREP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "out").mkdir()
    batches(datasets / "padded")  # TensorFlow is loaded before anything is timed
    for seed in SEEDS:
        draw = random.Random(seed)
        kind = draw.choice(KINDS)
        data = tmp_path / kind / "data"
        if not data.exists():
            for name in ("data", "reference"):
                shutil.copytree(datasets / kind, tmp_path / kind / name)
        text = seal(changed(json.loads((datasets / kind / manifest.NAME).read_text()), draw))
        (data / manifest.NAME).write_text(text)
        try:
            wrong = fault(data, tmp_path / "out")
        except (AssertionError, TooSlowError) as error:
            wrong = "".join(traceback.format_exception(error))
        assert not wrong, f"seed {seed}: {wrong}"


def test_a_manifest_that_names_no_file_of_its_source_is_no_traceback(datasets: Path, tmp_path: Path) -> None:
    """`make fuzz` found it: `report` looks at the first file."""
    data = shutil.copytree(datasets / "padded", tmp_path / "data")
    facts = json.loads((data / manifest.NAME).read_text())
    facts["source"]["files"] = []
    (data / manifest.NAME).write_text(seal(facts))
    for line in commands(data, tmp_path):
        if line[0] != "diff":
            result = CliRunner().invoke(main, line)
            assert isinstance(result.exception, SystemExit | None), line


def set_value(*key_path: str, value: Any) -> Callable[[Facts], None]:
    def change(facts: Facts) -> None:
        for name in key_path[:-1]:
            facts = facts[name]
        facts[key_path[-1]] = value

    return change


TRAIN = ("splits", "train")


@pytest.mark.parametrize(
    ("change", "values"),
    [
        (set_value("index", "every", value={}), ("index.every", "'train'")),
        (set_value("index", "every", "train", value=0), ("index.every",)),
        (set_value("lengths", "records", value={"x": 400}), ("lengths.records", "'x'")),
        (set_value("origins", "records", "x", value=1), ("origins.records", "'x'")),
        (set_value("settings", "delimiter", value="ab"), ('--delimiter "ab"',)),
        (set_value("settings", "encoding", value="x\0y"), ("--encoding",)),
        (set_value("settings", "encoding", value="hex"), ('--encoding "hex"',)),
        (set_value("ledger", "inputs", "tokens_before", value={}), ("ledger.inputs.tokens_before", "p50")),
        (
            set_value("ledger", "inputs", "worst", value=[{"id": "1", "tokens": 1, "lost": 1, "split": "x"}]),
            ("ledger.inputs.worst", "'x'"),
        ),
        (set_value(*TRAIN, "lengths", "joint", value=[[-5, -5, 3]]), ("joint[0][0]",)),
        (set_value(*TRAIN, "lengths", "joint", value=[[1 << 40, 1 << 40, 1 << 40]]), ("joint",)),
        (set_value(*TRAIN, "lengths", "inputs_before", value=[[-(1 << 62), 5]]), ("inputs_before[0][0]",)),
        (set_value(*TRAIN, "lengths", "inputs_before", value=[[1 << 62, 1 << 62]]), ("inputs_before[0][0]",)),
        (set_value(*TRAIN, "lengths", "step", value=[0, 1]), ("'train'", "step")),
        (set_value(*TRAIN, "records", value=1), ("'train'", " 1 ")),
        (set_value(*TRAIN, "unk_rate", value=7), ("'train'", "unk_rate", "7")),
        (set_value("tokenizer", "padded_vocab_size", value=1 << 40), (f"{1 << 40:,}",)),
        (set_value("tokenizer", "pad_id", value=1 << 20), ("tokenizer.pad_id", f"{1 << 20:,}")),
        (set_value("index", "name", value=".."), ("'..'",)),
        (set_value("rejected", value={"a": True}), ("$.rejected",)),
        (set_value("settings", "x\n\x1b[2Jy", value=1), ("(x  [2Jy)",)),
        (set_value("source", "files", value=LONG), ("files",)),
        (set_value("warnings", value=[1] * 500_000), ("warnings",)),
        (set_value("features", value={str(i): i for i in range(100_000)}), ("features",)),
    ],
)
def test_what_readers_would_believe_is_refused_when_it_is_loaded(
    datasets: Path, change: Callable[[Facts], None], values: tuple[str, ...]
) -> None:
    facts = json.loads((datasets / "padded" / manifest.NAME).read_text())
    change(facts)
    text = seal(facts)
    with bounded(), raises(DatasetError, "dataset.invalid-manifest", *values) as caught:
        manifest.loads(text, location="it")
    assert len(str(caught.value)) < 1000
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "text",
    [
        b" " * (manifest_checks.MOST_BYTES + 1),
        b"[" + b"{}," * manifest_checks.MOST_VALUES + b"{}]",
        b"[" * 200_000 + b"]" * 200_000,
        b'{"schema": 1' + b"0" * 5000 + b"}",
        b'{"schema": 2, "a": ' + b'{"a":' * 900 + b"1" + b"}" * 901,
    ],
    ids=["bytes", "values", "nested", "number", "depth"],
)
def test_a_text_that_would_take_memory_is_refused_before_it_is_parsed(text: bytes) -> None:
    with bounded(), raises(DatasetError, "dataset.invalid-manifest", "FOLDER/manifest.json"):
        manifest.loads(text, location="FOLDER/manifest.json")
