"""The README's commands run, its example of a task prepares, and its table of features is the manifest's."""

import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from preparing import by_id, prepared, write_csv

from t5prep import sample, tasks
from t5prep.cli import main

README = (Path(__file__).parents[1] / "README.md").read_text()


def blocks(kind: str) -> list[tuple[str, str]]:
    """(what the comment says, code) of the code blocks that are to be run."""
    return re.findall(rf"<!-- {kind}: (\S+) -->\n```\w+\n(.*?)```", README, re.DOTALL)


def test_commands_run_as_they_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("T5PREP_CACHE", str(tmp_path / "cache"))
    rows = [
        {"question": f"Why does part {i} fail?", "context": "It is broken. " * 60, "label": ["low", "high"][i % 2]}
        for i in range(30)
    ]
    write_csv(tmp_path / "mine.csv", rows)
    commands = [command for _, code in blocks("run") for command in code.replace("\\\n", " ").strip().splitlines()]
    assert len(commands) >= 4
    for command in commands:
        program, *args = shlex.split(command)
        assert program == "t5prep"
        if args[0] == "prepare":
            args += ["--workers", "1"]
        result = CliRunner().invoke(main, args)
        assert result.exit_code == 0, (command, result.output)


def test_the_example_of_a_task_is_a_whole_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ((name, code),) = blocks("task")
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / f"{name}.py").write_text(code)
    monkeypatch.setattr(tasks, "__path__", [*tasks.__path__, str(tmp_path / "tasks")])
    assert len(code.splitlines()) <= 40
    source = tmp_path / "news.jsonl"
    articles = [{"id": i, "text": f"Article {i} has words enough to be one.", "title": f"Title {i}"} for i in range(20)]
    source.write_text("".join(json.dumps(row) + "\n" for row in [*articles, {"id": 99, "text": "short", "title": "x"}]))
    made = prepared(source, tmp_path / "out", tokenizer=sample.tokenizer_path(), task=name)
    assert made.rejected == {"short article": 1}
    assert len(by_id(tmp_path / "out")) == 20


def test_the_table_of_features_is_the_manifests(tmp_path: Path) -> None:
    rows = write_csv(tmp_path / "rows.csv", [{"q": "why so", "a": "because"}] * 3)
    made = prepared(
        rows, tmp_path / "out", tokenizer=sample.tokenizer_path(), task="text2text",
        options={"inputs_column": "q", "targets_column": "a"},
    )  # fmt: skip
    named = re.findall(r"^\| `(\w+)` \| (\w+)\[", README, re.MULTILINE)
    assert {(name, feature.dtype) for name, feature in made.features.items()} == set(named) - {("references", "bytes")}
