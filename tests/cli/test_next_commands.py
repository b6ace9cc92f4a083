"""What a command tells to type can be typed: a path with spaces is quoted, and all that may be named is listed."""

import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner

import t5prep
from t5prep import cli
from t5prep.cli import _output
from t5prep.io import store
from t5prep.planning import interface
from t5prep.planning.chips import GIB
from t5prep.planning.compiled import Compiled
from t5prep.planning.interface import Plan
from t5prep.planning.questions import Answer, Question
from t5prep.training.evaluate import metrics
from t5prep.training.publish import export
from t5prep.training.run import run


def _next(*arguments: str) -> str:
    result = CliRunner().invoke(cli.main, arguments, catch_exceptions=False)
    (line,) = (line for line in result.stdout.splitlines() if line.startswith("next: "))
    typed = ["bash", "-c", f't5prep() {{ echo "$@"; }}; {line.removeprefix("next: ")}']
    assert subprocess.run(typed, capture_output=True, check=True).stderr == b""
    return line


def test_the_help_of_cache_clear_names_all_that_is_kept() -> None:
    help_text = CliRunner().invoke(cli.main, ["cache", "clear", "--help"], catch_exceptions=False).stdout
    assert all(item.kind in help_text for item in store.show())


def test_paths_with_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    result = SimpleNamespace(run="my run", steps=1, best="my run/checkpoints/00000001", evaluation=None)
    monkeypatch.setattr(t5prep, "train", lambda **_: result)
    assert _next("train", "--out", "my run") == "next: t5prep export --model 'my run' --out DIR"
    result.evaluation = SimpleNamespace(predictions=[], metrics={"loss": 1.0})
    monkeypatch.setattr(run, "manifests_of_run", lambda _: ["a manifest"])
    monkeypatch.setattr(metrics, "of_answers", lambda _: ["squad"])
    assert _next("train", "--out", "my run").startswith("next: t5prep eval --model 'my run'  # ")
    monkeypatch.setattr(metrics, "of_answers", lambda _: [])  # hidden tokens have no answers
    assert _next("train", "--out", "my run") == "next: t5prep export --model 'my run' --out DIR"
    monkeypatch.setattr(export, "export_hf", lambda *_, **__: result.best)
    assert (
        _next("export", "--model", "m", "--out", "my model") == "next: t5prep push --model 'my model' --repo USER/NAME"
    )


def _planned(monkeypatch: pytest.MonkeyPatch, *, gib: float, fits: bool = True) -> None:
    """Let the compiler answer every question with a step of `gib` GiB."""

    def answer(question: Question, *_: object, **__: object) -> Iterator[Plan]:
        yield Plan(Answer(question, Compiled(fits, int(gib * GIB), estimated_cycles=1000)))

    monkeypatch.setattr(interface, "stages", answer)


def test_the_next_command_of_a_plan_can_be_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = ["plan", "--model", "t5-small", "--tpu", "v5e-8", "--batch", "64", "--set", "remat=true"]
    _planned(monkeypatch, gib=1)
    assert _next(*plan) == f"next: t5prep {shlex.join(plan)} --largest"
    _planned(monkeypatch, gib=12)
    begin = "next: t5prep train"
    settings = "--set remat=true --set batch=64"
    assert _next(*plan) == f"{begin} --model t5-small --data DATA --out RUN {settings} --set epochs=3"
    assert _next(*plan, "--recipe", "tiny", "--save", "my run") == (
        f"{begin} --recipe tiny --model t5-small --data DATA --out 'my run' {settings}"
    )


def test_the_next_command_of_a_dry_run_is_the_command_without_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "a b.csv").write_text("Id,Title,Body,Y\n" + "".join(f"{n},sort a list,how,HQ\n" for n in range(40)))
    words = ["prepare", "so_quality", "--source", str(tmp_path / "a b.csv"), "--tokenizer", "sample:"]
    words += ["--out", str(tmp_path / "data"), "--workers", "1"]
    assert _next(*words[:2], "--dry-run", *words[2:]) == f"next: t5prep {shlex.join(words)}"
    assert CliRunner().invoke(cli.main, words).exit_code == 0
    _planned(monkeypatch, gib=1)
    train = ["train", "--data", str(tmp_path / "data"), "--out", "run", "--recipe", "tiny", "--tpu", "v5e-8"]
    assert _next(*train, "--dry-run") == f"next: t5prep {shlex.join(train)}"


def test_the_next_command_holds_no_credential() -> None:
    with click.Context(cli.main) as context:
        context.meta[_output.ARGUMENTS] = ["x", "https://me:secret@h/a?t=s3", "--dry-run", "--", "--dry-run"]
        assert _output.retyped(without="--dry-run", add=["--y"]) == "x 'https://h/a?t=…' --y -- --dry-run"
