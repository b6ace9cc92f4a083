"""The commands of README and docs run, those that cannot are spelled right, and what they show is what is printed."""

import contextlib
import dataclasses
import functools
import io
import json
import re
import shutil
from pathlib import Path

import published_models
import pytest
import readme
import torch_process
from click.testing import CliRunner
from readme import Code, Command
from servers.corpora import publish
from servers.internet import Internet
from small_corpora import by_id, prepared, write_csv

from t5prep.cli import main
from t5prep.sources import sample
from t5prep.tasks import registry
from t5prep.training.settings import train_config

SHELL = readme.codes("sh")
ARTICLES = [
    *({"id": i, "text": f"Article {i} has words enough to be one.", "title": f"Title {i}"} for i in range(20)),
    {"id": 99, "text": "short", "title": "x"},
]
# What a test adds, so that a command is done in seconds.
QUICK = {
    "train": ["--set", "steps=2", "--set", "warmup=1", "--set", "eval_every=2"],
    "tokenizer": ["--vocab-size", "200", "--lines", "1000"],
}


def _trains(code: Code) -> bool:
    """Whether a block wants TensorFlow: these run in a slow test of their own."""
    return any(
        words in code.text
        for words in ("t5prep train", "--model runs/", "import tensorflow", "import t5prep", "transformers")
    )


@pytest.fixture
def work_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty directory with the files that the README speaks of; this process prepares, with nothing kept."""
    from pipelines import prepare

    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("T5PREP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "100")  # of a terminal; pytest's processes have others
    monkeypatch.setattr(prepare, "prepare_resolved", functools.partial(_in_this_process, prepare.prepare_resolved))
    rows = [
        {"question": f"Why does part {i} fail?", "context": "It is broken. " * 60, "label": ["low", "high"][i % 2]}
        for i in range(30)
    ]
    Path("headlines.py").write_text(_task())
    Path("news.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ARTICLES))
    later = [{**row, "question": f"How long does piece {i} last?"} for i, row in enumerate(rows)]
    write_csv(Path("next.csv"), [*rows[:5], *later])
    shutil.copytree(readme.ROOT / "tests" / "data" / "pages", ".", dirs_exist_ok=True)
    return write_csv(Path("mine.csv"), rows).parent.resolve()


def _task() -> str:
    """Return the README's example of a task."""
    (code,) = (code.text for code in readme.codes("python") if "TASK = Task(" in code.text)
    return code


def _in_this_process(prepare, request):
    return prepare(dataclasses.replace(request, run=dataclasses.replace(request.run, workers=0)))


def _run(command: Command, *options: str) -> str:
    """What a t5prep command prints, with other values of some options."""
    assert command.program == "t5prep"
    arguments = readme.override(command.arguments, *QUICK.get(command.arguments[0], []), *options)
    if command.arguments[:2] == ["tokenizer", "check"] or "epochs=3" in command.arguments:
        arguments = command.arguments
    result = CliRunner().invoke(main, arguments, input=command.stdin, catch_exceptions=False)
    differs = command.arguments[0] == "diff" and result.exit_code == 1
    assert result.exit_code == 0 or differs, (command, result.output)
    return result.output


def test_every_block_is_run_or_says_that_it_is_not() -> None:
    for code in SHELL:
        programs = {command.program for command in readme.commands(code)}
        assert code.unrun or programs <= {"t5prep"} or programs == {"make"}, code
    assert sum(not code.unrun for code in SHELL) >= 12


def test_commands_run_as_they_are_written(work_folder: Path, internet: Internet) -> None:
    publish(internet)
    internet.page("example.org/mine.csv", Path("mine.csv").read_bytes())
    ran, outdated = [], []
    for code in SHELL:
        if code.unrun or _trains(code) or code.text.startswith("make"):
            continue
        printed = ""
        for command in readme.commands(code):
            printed += _run(command)
            ran.append(command.arguments)
        outdated += [(code.heading, line) for line in _not_printed(code.output, printed)]
    assert outdated == []
    assert {arguments[1] for arguments in ran if arguments[0] == "prepare"} >= {"text2text"}
    assert Path("data/hour/report.html").exists()


@pytest.mark.extra("torch")
@pytest.mark.usefixtures("lowered_once")
@pytest.mark.slow
def test_the_trained_model_is_loaded_as_it_is_written(work_folder: Path, internet: Internet) -> None:
    """The own table's block trains a tiny model that has the files of the published one."""
    internet.hub.models["google-t5/t5-base"] = published_models.files(
        "google-t5/t5-base", work_folder.parent / "t5-base"
    )
    _run(Command("t5prep", [*SAMPLE, "--limit", "160"]))
    short_rows = ("--input-length", "64")  # of the own table: the sample's length stands in a program of a page
    printed = ""
    for code in readme.codes("sh", "python"):
        if code.unrun or not _trains(code):
            continue
        if "transformers" in code.text:
            printed += torch_process.pytorch_code(code.text)
        elif code.language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(compile(code.text, code.heading, "exec"), {"__name__": "__main__"})
            printed += output.getvalue()
        else:
            for command in readme.commands(code):
                _run(command, *(short_rows if command.arguments[0] == "prepare" else ()))
    assert Path("runs/sample/report.html").exists()
    assert len(Path("answers.csv").read_text().splitlines()) == 31
    batches, _, records, scores = printed.splitlines()
    assert (batches, records) == ("so_quality (32, 2)", "(32, 512)")
    assert scores.startswith("validation ['accuracy'")


@pytest.mark.parametrize("code", [code for code in SHELL if code.unrun], ids=lambda code: code.heading)
def test_commands_that_are_not_run_are_spelled_right(code: Code) -> None:
    """Their options are parsed as the program parses them; of the others only the names are looked at."""
    for command in readme.commands(code):
        if command.program == "t5prep":
            readme.parse(main, command.arguments)
        elif command.program == "python":
            assert (readme.ROOT / (command.arguments[1].replace(".", "/") + ".py")).exists(), command
        elif command.program == "pip":
            assert set(re.findall(r"\[(\w+)\]", " ".join(command.arguments))) <= set(readme.extras()), command
        else:
            assert command.program in {"make", "gcloud", "python3", "."}, command


def test_recipes_that_are_named_are_there() -> None:
    recipe_names = re.findall(r"--recipe (\w+)", readme.TEXT)
    assert len(recipe_names) >= 6
    for name in recipe_names:
        train_config.read_recipe(name)


def test_make_takes_what_is_said_to_it() -> None:
    """Targets are the Makefile's, and what is set on a command line is a variable that it reads."""
    makefile = (readme.ROOT / "Makefile").read_text()
    for code in SHELL:
        for command in readme.commands(code):
            if command.program != "make":
                continue
            target, *settings = command.arguments
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), command
            for name, _, value in (setting.partition("=") for setting in settings):
                assert f"$({name})" in makefile, command
                if name == "TASK":
                    assert value in registry.names()
    dataflow_commands = [
        command for code in SHELL for command in readme.commands(code) if "RUNNER=dataflow" in command.arguments
    ]
    assert len(dataflow_commands) == 1
    variables = dict(setting.split("=", 1) for setting in dataflow_commands[0].arguments[1:])
    line = ["prepare", variables["TASK"], "--source", variables["SOURCE"], "--tokenizer", variables["TOKENIZER"]]
    readme.parse(main, [*line, "--out", variables["OUT"], "--runner", variables["RUNNER"], *variables["ARGS"].split()])


def test_what_make_runs_is_spelled_right() -> None:
    makefile = (readme.ROOT / "Makefile").read_text()
    values = {**dict(re.findall(r"^(\w+) \?= ?(.*)$", makefile, re.MULTILINE)), "BIN": "bin"}
    lines = re.findall(r"^\t@\$\(BIN\)/t5prep (.+)$", makefile, re.MULTILINE)
    assert len(lines) == 3  # prep, and train with eval; report stands in a condition
    for line in lines:
        for name, value in values.items():
            line = line.replace(f"$({name})", value)
        (command,) = readme.commands(Code("", "sh", f"t5prep {line}"))
        readme.parse(main, command.arguments)


# What `make prep` runs, by the Makefile's own defaults.
SAMPLE = ["prepare", "so_quality", "--source", "sample:", "--tokenizer", "sample:", "--out", "data/sample"]


def test_what_make_prep_prints(work_folder: Path) -> None:
    makefile = (readme.ROOT / "Makefile").read_text()
    assert re.findall(r"^(?:TASK|SOURCE|TOKENIZER|OUT) \?= (.+)$", makefile, re.MULTILINE) == SAMPLE[1::2]
    (page_output,) = (code.output for code in SHELL if code.text.startswith("make prep\n") and code.output)
    printed = _run(Command("t5prep", SAMPLE)) + _run(Command("t5prep", ["report", "data/sample"]))
    printed_lines = [line for line in printed.splitlines() if "tokenized" not in line or line.startswith("  cut")]
    first = next(number for number, line in enumerate(printed_lines) if line.startswith("data/sample:"))
    lines = page_output.splitlines()
    for line, expected in zip(printed_lines[first : first + len(lines)], lines, strict=True):
        beginning = expected.removesuffix(" ...")
        assert _without_sizes(line).startswith(_without_sizes(beginning)), (line, expected)


def _without_sizes(line: str) -> str:
    return re.sub(r"in [\d.]+ s|[\d.]+ kB", "…", line)


def _not_printed(page_output: str, printed: str) -> list[str]:
    """Return the lines of a page's output with which no printed line begins; a page may leave out lines, and the end of one."""
    lines = [_without_sizes(line) for line in printed.splitlines()]
    return [
        line
        for line in page_output.splitlines()
        if not any(printed_line.startswith(_without_sizes(line)) for printed_line in lines)
    ]


def test_the_example_of_a_task_is_a_whole_one(work_folder: Path) -> None:
    assert "a whole one, `headlines.py`" in readme.TEXT
    assert len(_task().splitlines()) <= 40
    manifest = prepared("news.jsonl", work_folder / "out", tokenizer=sample.tokenizer_path(), task="headlines.py")
    assert manifest.rejected == {"short article": 1}
    assert len(by_id(work_folder / "out")) == 20


def test_the_table_of_features_is_the_manifests(tmp_path: Path) -> None:
    rows = write_csv(tmp_path / "rows.csv", [{"q": "why so", "a": "because"}] * 3)
    manifest = prepared(
        rows, tmp_path / "out", tokenizer=sample.tokenizer_path(), task="text2text",
        options={"inputs_column": "q", "targets_column": "a"},
    )  # fmt: skip
    documented_features = re.findall(r"^\| `(\w+)` \| (\w+)\[", readme.TEXT, re.MULTILINE)
    assert {(name, feature.dtype) for name, feature in manifest.features.items()} == set(documented_features) - {
        ("references", "bytes")
    }


@pytest.mark.parametrize(
    "page",
    [*readme.ROOT.glob("*.md"), *(readme.ROOT / "docs").rglob("*.md")],
    ids=lambda page: page.relative_to(readme.ROOT).as_posix(),
)
def test_links_lead_somewhere(page: Path) -> None:
    for link in _links(page):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in _anchors(target), link


def _anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as the usual renderers make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_reached_from_the_readme() -> None:
    """By links of the README, and of the pages that those lead to."""
    reached, new = set[Path](), {readme.ROOT / "README.md"}
    while new:
        reached |= new
        links = {page.parent / link.partition("#")[0] for page in new if page.suffix == ".md" for link in _links(page)}
        new = {link.resolve() for link in links if link.is_file()} - reached
    assert {path for path in (readme.ROOT / "docs").rglob("*") if path.is_file()} - reached == set()


def _links(page: Path) -> list[str]:
    """Return the links of a page to files of the project, with their anchors."""
    links = re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8"))
    return [link for link in links if "://" not in link]


def test_no_text_installs_by_a_name_that_no_index_has() -> None:
    """t5prep is installed from a clone: `pip install -e '.[train]'`, never `pip install t5prep[train]`."""
    files = [path for top in ("t5prep", "pipelines", "docs") for path in (readme.ROOT / top).rglob("*")]
    texts = [
        *readme.ROOT.glob("*.md"),
        *(path for path in files if path.suffix in (".py", ".md", ".ipynb", ".toml", ".html")),
    ]
    wrong = re.compile(r"pip3? install(?:\s+-\S+)*\s+[\"'\\]*t5prep")
    assert [path.name for path in texts if wrong.search(path.read_text(encoding="utf-8"))] == []
