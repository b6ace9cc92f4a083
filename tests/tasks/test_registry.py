"""A task in a file of the user's own, and tasks that packages offer: found, checked, and said in one sentence."""

import importlib
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from raised import raises, refused
from small_corpora import prepared, write_csv

from t5prep import cli
from t5prep.dataset import manifest
from t5prep.errors import OutputError, TaskError, UsageError
from t5prep.tasks import registry

TASK = """
'''Words → the same words, shouted.'''

import dataclasses

from t5prep.tasks import Columns, Example, Reject, Task, option


@dataclasses.dataclass(frozen=True)
class Options:
    mark: str = option("!", "what is put behind each text", choices=("!", "?"))


def to_example(record, options):
    if not record["words"]:
        raise Reject("no words")
    return Example(id=record["id"], inputs=record["words"], targets=record["words"].upper() + options.mark)


TASK = Task(to_example, Columns(inputs=["words"], id="id"), options=Options, target_length=16, metrics=["rouge"])
"""


@pytest.fixture
def task(tmp_path: Path) -> Path:
    path = tmp_path / "shout.py"
    path.write_text(TASK)
    return path


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    texts = ["", *(f"some words {i}" for i in range(40))]
    return write_csv(tmp_path / "rows.csv", [{"id": str(i), "words": text} for i, text in enumerate(texts)])


def prepare(*arguments: object) -> str:
    """Return what `t5prep prepare` prints, on either stream."""
    result = CliRunner().invoke(cli.main, ["prepare", *map(str, arguments), "--workers", "1"])
    assert "Traceback" not in result.output
    return result.output


def test_a_file_is_a_task_of_the_command_line(task: Path, rows: Path, tmp_path: Path) -> None:
    """Its rows are made in a worker process, which gets the file; the manifest names it with its checksum."""
    out = tmp_path / "out"
    printed = prepare(task, "--source", rows, "--tokenizer", "sample:", "--out", out, "--mark", "?")
    assert "41 read = 40 examples + 1 rejected" in printed
    dataset = manifest.load(out)
    assert (dataset.settings.task, dataset.settings.options, dataset.settings.target_length) == (
        "shout",
        {"mark": "?"},
        16,
    )
    assert (dataset.task.file, dataset.task.sha256, dataset.task.metrics) == (
        "shout.py",
        registry.get(str(task)).sha256,
        ["rouge"],
    )
    assert dataset.rejected == {"no words": 1}
    help = prepare(task, "--help")
    assert "--mark [!|?]" in help
    assert "Words → the same words, shouted." in help


def test_another_file_of_the_name_makes_another_dataset(task: Path, rows: Path, tmp_path: Path) -> None:
    prepared(rows, tmp_path / "out", tokenizer="sample:", task=str(task))
    prepared(rows, tmp_path / "out", tokenizer="sample:", task=str(task))  # the same one may be prepared again
    task.write_text(TASK.replace("upper", "title"))
    with raises(OutputError, "output.different-settings"):
        prepared(rows, tmp_path / "out", tokenizer="sample:", task=str(task))


def test_tokens_of_a_file_are_found_again_until_it_does_something_else(task: Path, rows: Path, tmp_path: Path) -> None:
    def count_cached_blocks(name: str) -> int:
        prepared(rows, tmp_path / name, tokenizer="sample:", task=str(task), cache=tmp_path / "kept")
        return len(list((tmp_path / "kept").glob("??/*.arrow")))

    assert count_cached_blocks("one") == 1
    task.write_text(TASK.replace("def to_example", "# as loud as it can\ndef to_example"))
    assert count_cached_blocks("two") == 1
    task.write_text(TASK.replace("upper", "title"))
    assert count_cached_blocks("three") == 2


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("def to_example(:\n", ("task.syntax-error", "shout.py, line 1: invalid syntax")),
        ("import numby\n", ("task.import-failure", "shout.py, line 1: ModuleNotFoundError: No module named 'numby'")),
        (
            "x = 1\ny = x.z\n",
            ("task.import-failure", "shout.py, line 2: AttributeError: 'int' object has no attribute 'z'"),
        ),
        ("x = 1\n", ("task.missing-definition", "shout.py", "TASK = Task(to_example=..., columns=...)")),
        ("TASK = 7\n", ("task.missing-definition", "shout.py", " int")),
        (
            "from t5prep.tasks import Task\nTASK = Task()\n",
            ("task.import-failure", "shout.py, line 2: TypeError: Task.__init__() missing"),
        ),
        (b"x = 'caf\xe9'\n", ("task.syntax-error", "shout.py, line 1: ")),
    ],
)
def test_a_file_that_cannot_be_used_is_a_sentence(
    task: Path, rows: Path, code: str | bytes, error: tuple[str, ...]
) -> None:
    task.write_bytes(code if isinstance(code, bytes) else code.encode())
    out = task.parent / "out"
    refused(*error, command=("prepare", task, "--source", rows, "--tokenizer", "sample:", "--out", out))
    assert not (task.parent / "out").exists()


@pytest.mark.parametrize(
    ("old", "new", "values"),
    [
        ('id=record["id"]', "id=7", (" id ", " int", " str")),
        ("return Example(", "return dict(", (" dict", "Example")),
        ('record["words"].upper()', 'record["wrods"]', ("KeyError: 'wrods' (shout.py, line 17)",)),
        (
            'record["words"].upper()',
            "1",
            ("TypeError: unsupported operand type(s) for +: 'int' and 'str' (shout.py, line 17)",),
        ),
    ],
)
def test_a_file_that_fails_at_a_row_is_a_sentence(
    task: Path, rows: Path, old: str, new: str, values: tuple[str, ...]
) -> None:
    task.write_text(TASK.replace(old, new))
    with raises(TaskError, "task.example-failure", "rows.csv", *values):
        prepared(rows, task.parent / "out", tokenizer="sample:", task=str(task))
    assert not (task.parent / "out" / manifest.NAME).exists()


def test_names_that_lead_nowhere(tmp_path: Path) -> None:
    with raises(TaskError, "task.not-found", "nothing.py"):
        registry.get(str(tmp_path / "nothing.py"))
    (tmp_path / "folder.py").mkdir()
    with raises(TaskError, "task.unreadable", "folder.py"):
        registry.get(str(tmp_path / "folder.py"))
    with raises(UsageError, "task.unknown", "sst2", "sst3"):
        registry.get("sst3")
    (tmp_path / "my task.py").write_text(TASK)
    with raises(TaskError, "task.invalid-name", "my task.py"):
        registry.get(str(tmp_path / "my task.py"))


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a package that is installed for this process: it offers the tasks `shout` and `broken`."""
    site = tmp_path / "site"
    (site / "loud").mkdir(parents=True)
    (site / "loud" / "__init__.py").touch()
    (site / "loud" / "shout.py").write_text(TASK)
    about = site / "loud-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: loud\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[t5prep.tasks]\nshout = loud.shout\nbroken = loud.missing\n")
    monkeypatch.syspath_prepend(str(site))
    importlib.invalidate_caches()
    for cached in (registry._offered, registry._installed):
        cached.cache_clear()
    yield site
    for cached in (registry._offered, registry._installed):
        cached.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "loud"]:
        del sys.modules[name]


def test_a_package_offers_tasks(package: Path, rows: Path, tmp_path: Path) -> None:
    assert "shout" in registry.names()
    listed = CliRunner().invoke(cli.main, ["tasks"])
    assert "shout\n  Words → the same words, shouted." in listed.stdout
    assert "broken" in listed.stderr
    assert "loud.missing" in listed.stderr
    help = CliRunner().invoke(cli.main, ["prepare", "--help"]).output
    assert "shout" in help
    assert "broken" not in help
    dataset = prepared(rows, tmp_path / "out", tokenizer="sample:", task="shout")
    assert (dataset.settings.task, dataset.task.file) == ("shout", "")


def test_a_package_that_cannot_be_loaded_is_a_sentence(package: Path) -> None:
    with raises(TaskError, "task.import-failure", "broken", "loud"):
        registry.get("broken")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "import dataclasses\n",
            "import sys\nsys.exit(0)\n",
            ("task.import-failure", "shout.py, line 5", "SystemExit: 0"),
        ),
        ('Columns(inputs=["words"], id="id")', '["words"]', ("task.import-failure",)),
        ('inputs=["words"]', 'inputs="words"', ("task.import-failure",)),
        ("Task(to_example,", 'Task("words",', ("task.import-failure",)),
        ('inputs=["words"]', "inputs=[3]", ("task.import-failure",)),
        ('inputs=["words"]', "inputs=None", ("task.import-failure",)),
        ('metrics=["rouge"]', 'metrics="rouge"', ("task.import-failure",)),
        ('metrics=["rouge"]', 'metrics=["rogue"]', ("task.import-failure", "rogue")),
        ("options=Options", "options=3", ("task.import-failure",)),
        ("options=Options", "corpus=None", ("task.import-failure",)),
        ("options=Options", "template=3", ("task.import-failure",)),
        ("options=Options", "classes=3", ("task.import-failure",)),
        ("target_length=16", "target_length=0", ("task.import-failure",)),
    ],
)
def test_a_file_that_ends_the_program_or_gives_something_else(
    task: Path, old: str, new: str, message: tuple[str, ...]
) -> None:
    """A file that called sys.exit(0) ended the command with exit code 0, and no dataset."""
    assert old in TASK
    task.write_text(TASK.replace(old, new))
    with raises(TaskError, *message):
        registry.get(str(task))


def test_columns_by_options_that_are_none(task: Path) -> None:
    task.write_text(TASK.replace('Columns(inputs=["words"], id="id")', 'lambda options: ["words"]'))
    with raises(TaskError, "task.invalid-columns", "list", "shout"):
        _ = registry.get(str(task)).choose({}).columns


def test_a_task_that_ends_the_program_at_a_row(task: Path, rows: Path, tmp_path: Path) -> None:
    task.write_text(TASK.replace('raise Reject("no words")', "raise SystemExit(0)"))
    command = ("prepare", task, "--source", rows, "--tokenizer", "sample:", "--out", tmp_path / "out", "--workers", 1)
    refused("task.example-failure", "shout", "rows.csv, row 1", "SystemExit: 0", command=command)
