"""The commands that sentences, pages and examples advise are run, in a folder that has what they name."""

import json
import random
import shlex
from pathlib import Path

import encoders
import pytest
import readme
import small_corpora
import test_advice
import test_published_table
import toy_runs
from click.testing import CliRunner
from servers.corpora import publish
from servers.internet import Internet

from t5prep import cli

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("lowered_once")]

# What an advice leaves open, by the word before it.
OPEN = {
    "--model": "runs/sample",
    "--source": "mine.csv",
    "--try": "pages.jsonl",
    "--predictions": "answers.json",
    "check": "sample:",
    "--repo": "me/model",
    "prepare": "so_quality",
}
NAMES = {
    "TASK": "so_quality",
    "RUN": "runs/sample",
    "DIR": "models/dir",
    "FOLDER": "models/folder",
    "FILE": "eval.json",
    "rows.csv": "mine.csv",
    "THIS_MODEL": "runs/sample",
    "google-bert/bert-base-uncased": "models/bert",
}
NAMES |= {"RUN/eval.json": "runs/sample/eval.json", "USER/NAME": "me/model", "data/x": "data/open", "xx": "mine.csv"}
# What keeps a command short that a person would run on more.
SHORT = {"tokenizer train": ["--vocab-size", "300"], "eval": ["--limit", "4"], "predict": ["--max-length", "3"]}
# The others, and why they are not run here.
ELSEWHERE = {
    "plan": "the TPU compiler takes minutes: tests/planning",
    "train": "a whole training: tests/test_readme.py",
    "doctor": "a TPU and a bucket: tests/cli/test_doctor.py",
    "why": "a row's id: tests/preparation/test_row_trace.py",
    "embed": "a T5-XXL on a TPU: tests/training/embed",
}


def _runnable() -> list[tuple[str, str]]:
    # Those of the published systems' table need each other's results: tests/test_published_table.py runs them in its order.
    in_table = {
        table_command for lines in test_published_table.TABLE.values() for line in lines for table_command in line.ours
    }
    chosen = [
        (file_name, text) for file_name, text in test_advice.advised() if "..." not in text and text not in in_table
    ]
    return [(file_name, text) for file_name, text in chosen if text.split()[1] not in ELSEWHERE or "--settings" in text]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything that examples name: the sample prepared, a run on it, tables, texts and a filter."""
    folder = tmp_path_factory.mktemp("advice")
    rows = [
        {"Id": str(n), "Title": f"Why {n}", "Body": f"It is <b>{n}</b>", "Y": ["HQ", "LQ_EDIT", "LQ_CLOSE"][n % 3],
         "text": f"a text number {n} of some words", "label": ["good", "bad"][n % 2], "body": f"body {n}"}
        for n in range(40)
    ]  # fmt: skip
    small_corpora.write_csv(folder / "mine.csv", rows)
    small_corpora.write_csv(folder / "questions.csv", rows[:3])
    generator = random.Random(0)
    words = ["".join(generator.choices("abcdefghijklmnoprstuvz", k=generator.randint(2, 9))) for _ in range(600)]
    for name in ("texts.txt", "wiki.txt"):
        (folder / name).write_text("\n".join(" ".join(generator.choices(words, k=12)) + "." for _ in range(800)))
    (folder / "pages.jsonl").write_text("".join(json.dumps({"text": row["text"] * 9}) + "\n" for row in rows))
    encoders.bert(folder / "models" / "bert")
    (folder / "mine.py").write_text("def no_menus(text):\n    return text\n")
    splits = {"train": 0.5, "validation": 0.5}
    manifest = small_corpora.prepared(
        folder / "mine.csv", folder / "data" / "sample", tokenizer="sample:", splits=splits, input_length=32
    )
    toy_runs.create_run(folder / "runs" / "sample", manifest, data=str(folder / "data" / "sample"))
    return folder


def test_what_is_advised_runs(world: Path, internet: Internet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command that a message, page or example advises ends well; other tests only parse them.

    One test, because each process of pytest would parse all modules to name the cases.
    """
    publish(internet)
    monkeypatch.chdir(world)
    monkeypatch.setenv("HF_TOKEN", internet.hub.token)
    failures = [failure for file_name, text in _runnable() if (failure := _failure(file_name, text, world))]
    assert not failures


def _failure(file_name: str, text: str, world: Path) -> str:
    """Run an advised command, and return how it failed; "" if it did not."""
    words = [NAMES.get(word, word) for word in shlex.split(text)[1:]]
    words = [OPEN[words[index - 1]] if word == "x" else word for index, word in enumerate(words)]
    for model_path in ("models/sample", "models/folder", "models/dir"):
        if words[:3] == ["push", "--model", model_path] and not (world / model_path).exists():
            CliRunner().invoke(
                cli.main, ["export", "--model", "runs/sample", "--out", model_path], catch_exceptions=False
            )
    if words[0] == "export" and (world / words[words.index("--out") + 1]).exists():
        words[words.index("--out") + 1] += "-again"
    if words[0] == "prepare" and "data/sample" in words:
        words[words.index("data/sample")] = "data/sample-again"
    words = readme.override(
        words, *next((extra_options for name, extra_options in SHORT.items() if text.startswith(f"t5prep {name} ")), [])
    )
    standard_input = "quality: How do I sort a list?\n" if "--as-text" in words else None
    result = CliRunner().invoke(cli.main, words, input=standard_input)
    return "" if result.exit_code == 0 else f"{file_name}: {words}: {result.output[-2000:]} {result.exception!r}"


def test_what_is_not_run_here_is_known() -> None:
    programs = {text.split()[1] for _, text in test_advice.advised()}
    assert set(ELSEWHERE) <= programs
    assert len(_runnable()) >= 20
