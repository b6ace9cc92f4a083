"""The command that comes next can be pasted: a path with spaces is quoted."""

from types import SimpleNamespace

import pytest
from click.testing import CliRunner

pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

import t5prep
from t5prep import cli
from t5prep.train import export


def _next(*arguments: str) -> str:
    result = CliRunner().invoke(cli.main, arguments, catch_exceptions=False)
    (line,) = (line for line in result.stdout.splitlines() if line.startswith("next: "))
    return line


def test_paths_with_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    done = SimpleNamespace(run="my run", steps=1, best="my run/checkpoints/00000001", evaluation=None)
    monkeypatch.setattr(t5prep, "train", lambda **_: done)
    assert _next("train", "--out", "my run") == "next: t5prep export --model 'my run' --out DIR"
    done.evaluation = SimpleNamespace(predictions=[], metrics={"loss": 1.0})
    assert _next("train", "--out", "my run").startswith("next: t5prep eval --model 'my run'   (")
    monkeypatch.setattr(export, "export_hf", lambda *_, **__: done.best)
    assert (
        _next("export", "--model", "m", "--out", "my model") == "next: t5prep push --model 'my model' --repo USER/NAME"
    )
