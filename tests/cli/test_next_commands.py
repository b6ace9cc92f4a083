"""What a command tells to type can be typed: a path with spaces is quoted, and all that may be named is listed."""

from types import SimpleNamespace

import pytest
from click.testing import CliRunner

import t5prep
from t5prep import cli
from t5prep.io import store
from t5prep.training.evaluate import metrics
from t5prep.training.publish import export
from t5prep.training.run import run


def _next(*arguments: str) -> str:
    result = CliRunner().invoke(cli.main, arguments, catch_exceptions=False)
    (line,) = (line for line in result.stdout.splitlines() if line.startswith("next: "))
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
    assert _next("train", "--out", "my run").startswith("next: t5prep eval --model 'my run'   (")
    monkeypatch.setattr(metrics, "of_answers", lambda _: [])  # hidden tokens have no answers
    assert _next("train", "--out", "my run") == "next: t5prep export --model 'my run' --out DIR"
    monkeypatch.setattr(export, "export_hf", lambda *_, **__: result.best)
    assert (
        _next("export", "--model", "m", "--out", "my model") == "next: t5prep push --model 'my model' --repo USER/NAME"
    )
