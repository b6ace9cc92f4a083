"""Each option of generation reaches the search from `eval`, `predict` and Python, and changes what the search says."""

import dataclasses
from pathlib import Path
from typing import Any

import click.testing
import pytest
import toy_runs
from raised import assert_error, raises

import t5prep
from t5prep import cli
from t5prep.dataset import manifest
from t5prep.errors import UsageError
from t5prep.options.fields import as_cli_option
from t5prep.options.generation import Generation
from t5prep.training.evaluate import evaluator
from t5prep.training.predict import device
from t5prep.training.predict.device import check_generates
from t5prep.training.run import run

# Each option with the options beside it, without which it is refused or says nothing.
OPTIONS: dict[str, tuple[Any, dict[str, Any]]] = {
    "max_length": (3, {}),
    "min_length": (7, {}),
    "beams": (4, {}),
    "length_penalty": (-4.0, {"beams": 4}),
    "no_repeat_ngram": (1, {}),
    "sample": (True, {}),
    "temperature": (0.05, {"sample": True}),
    "top_k": (1, {"sample": True}),
    "top_p": (0.001, {"sample": True}),
    "seed": (5, {"sample": True}),
}
EVERY = sorted(OPTIONS)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return toy_runs.sentences(tmp_path_factory.mktemp("data") / "data", rows=24)


@pytest.fixture(scope="module")
def model(data: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("run") / "run"
    toy_runs.create_run(out, manifest.load(data), data=data)
    return str(out)


def test_every_option_is_tried() -> None:
    """`answers` and `scores` are options of what is written, and `test_predictions` has them."""
    assert {field.name for field in dataclasses.fields(Generation)} == {*OPTIONS, "answers", "scores"}


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[Generation]:
    """The options of each search; none is compiled."""
    searches: list[Generation] = []

    def record(config: Any, options: Generation, **_: Any) -> Any:
        searches.append(options)
        raise UsageError("enough", code="option.missing")

    monkeypatch.setattr(device, "answers_on_rows", record)
    monkeypatch.setattr(evaluator, "answers_on_rows", record)
    return searches


@pytest.mark.parametrize("name", EVERY)
def test_an_option_reaches_the_search(
    name: str, model: str, data: str, searched: list[Generation], tmp_path: Path
) -> None:
    value, required_options = OPTIONS[name]
    chosen = {**required_options, name: value}
    lines = tmp_path / "lines.txt"
    lines.write_text("one two\n")
    with raises(UsageError, "option.missing", "enough"):
        t5prep.evaluate(model, data=data, **chosen)
    with raises(UsageError, "option.missing", "enough"):
        t5prep.predict(model, ["one two"], **chosen)
    typed = " ".join(as_cli_option(key, option_value) for key, option_value in chosen.items()).split()
    for command in (["eval", "--data", data], ["predict", str(lines), "--as-text"]):
        result = click.testing.CliRunner().invoke(cli.main, [*command, "--model", model, *typed])
        assert_error(result.stderr, "option.missing", "enough")
    assert len(searched) == 4
    for options in searched:
        assert {key: getattr(options, key) for key in chosen} == chosen


# An untrained model ends no answer: `test_generate` compares what concerns the end with transformers.
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(OPTIONS.keys() - {"length_penalty", "min_length"}))
def test_an_option_changes_the_answers(name: str, model: str) -> None:
    """No option of generation is accepted and ignored by the search, which `eval` gives the same options (see above)."""
    value, required_options = OPTIONS[name]
    texts = [f"{n} two three" for n in ("one", "four", "nine", "zero")]

    def predict(**chosen: Any) -> list[str | None]:
        return [answer.prediction for answer in t5prep.predict(model, texts, **chosen)]

    changed_answers = predict(**{**required_options, name: value})
    assert predict(**required_options) != changed_answers
    if name == "seed":  # drawn numbers too are the same again
        assert predict(**{**required_options, name: value}) == changed_answers


def test_options_count_where_answers_are_one_token(data: str, tmp_path: Path, searched: list[Generation]) -> None:
    """One forward pass gives such an answer, but it draws none: `eval --sample` said nothing else than `eval`."""
    classes = toy_runs.classes(tmp_path / "classes", rows=24)
    out = tmp_path / "run"
    toy_runs.create_run(out, manifest.load(classes), data=classes)
    with raises(UsageError, "option.missing", "enough"):
        t5prep.evaluate(str(out), data=classes, sample=True)
    assert searched[0].sample
    with raises(UsageError, "option.missing-prerequisite", "--bootstrap"):
        t5prep.evaluate(str(out), data=classes, bootstrap=True)


def test_options_that_say_nothing_are_refused(model: str) -> None:
    with raises(UsageError, "option.missing-prerequisite", "1"):
        Generation(length_penalty=1.0)
    opened = run.open_model(model)
    classifier = dataclasses.replace(opened, config=dataclasses.replace(run.TINY_ENCODER, classes=("a", "b")))
    check_generates(classifier, Generation(scores=True, answers=2, beams=2))
    with raises(UsageError, "option.inapplicable"):
        check_generates(classifier, Generation(beams=4, no_repeat_ngram=2))
    for ineffective in (Generation(max_length=8), Generation(answers=2, beams=2, length_penalty=1.0)):
        with raises(UsageError, "option.inapplicable"):
            check_generates(classifier, ineffective)
