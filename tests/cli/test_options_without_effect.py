"""An option is refused where no other option gives it an effect, so that no option is ignored in silence."""

import dataclasses
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import click
import pytest
from raised import refused

from pipelines.run_options import RunOptions
from t5prep.cli import COMMANDS, main
from t5prep.cli._options import DependentOption
from t5prep.dataset.settings import Settings
from t5prep.errors import UsageError
from t5prep.options.fields import as_cli_option, build, flag, leaves
from t5prep.options.models import EmbedOptions, EvaluateOptions, ExportOptions, PlanOptions, PredictOptions
from t5prep.preparation import task_settings
from t5prep.tasks import registry
from t5prep.training.settings import train_config
from tests.raised import raises

CLASSES = (EmbedOptions, EvaluateOptions, ExportOptions, PlanOptions, PredictOptions, RunOptions)
# Options with parsed or free texts → a value that is not the default.
VALUES = {
    "decontaminate": ("data/sample",), "dedup_against": ("data/sample",), "decontaminate_words": 8, "near_jaccard": 0.5,
    "near_hashes": 64, "memory": "3GiB", "label_separator": ";", "empty_target": "none", "top_p": 0.5,
    "license": "mit", "split": "test", "data": "data/sample", "end_rate": 1e-4,
}  # fmt: skip


def _another(field: "dataclasses.Field[Any]") -> Any:
    """Return a value of `field` that is not its default."""
    default, choices = field.default, field.metadata["choices"]
    if field.name in VALUES:
        return VALUES[field.name]
    if choices:
        return next(choice for choice in choices if choice != default)
    if default is None:  # a price
        return 0.25 if "float" in str(field.type) else "0.07"
    return {bool: not default, int: 7, float: 0.25, str: "name"}[type(default)]


def _dependent(fields: Any) -> Iterator["dataclasses.Field[Any]"]:
    return (field for field in fields if field.metadata.get("only_with"))


def _without(fields: "list[dataclasses.Field[Any]]", only_with: Any) -> dict[str, Any]:
    """Return values of the prerequisites with which the option has no effect: the defaults, or another choice."""
    by_name = {field.name: field for field in fields}
    return {
        name: next(choice for choice in by_name[name].metadata["choices"] if choice not in values)
        for name, values in only_with.items()
        if values and by_name[name].default in values
    }


def _with(fields: "list[dataclasses.Field[Any]]", only_with: Any) -> dict[str, Any]:
    """Return the first prerequisite with a value with which the option has an effect."""
    name, values = next(iter(only_with.items()))
    return {name: values[0] if values else _another({field.name: field for field in fields}[name])}


@pytest.mark.parametrize(("cls", "name"), [(cls, field.name) for cls in CLASSES for field in _dependent(leaves(cls))])
def test_an_option_of_a_command(cls: Any, name: str) -> None:
    fields = list(leaves(cls))
    (field,) = (field for field in fields if field.name == name)
    only_with = field.metadata["only_with"]
    choice = {field.name: _another(field)}
    with raises(UsageError, "option.missing-prerequisite", flag(field.name)):
        build(cls, {**choice, **_without(fields, only_with)})
    build(cls, {**choice, **_with(fields, only_with)})


@pytest.mark.parametrize("name", [field.name for field in _dependent(dataclasses.fields(Settings))])
def test_an_option_of_a_preparation(name: str) -> None:
    fields = list(dataclasses.fields(Settings))
    field = Settings.__dataclass_fields__[name]
    chosen, choice, only_with = registry.get("sst2").choose({}), {name: _another(field)}, field.metadata["only_with"]
    with raises(UsageError, "option.missing-prerequisite", as_cli_option(name, choice[name])):
        task_settings.requested(chosen, {**choice, **_without(fields, only_with)})
    task_settings.requested(chosen, {**choice, **_with(fields, only_with)})


def test_the_options_of_a_task() -> None:
    task = registry.get("text2text")
    with raises(UsageError, "option.missing-prerequisite", "--label-separator", "--labels-column"):
        task.choose({"inputs_column": "a", "targets_column": "b", "label_separator": ";"})
    with raises(UsageError, "option.missing-prerequisite", "--empty-target none"):
        task.choose({"inputs_column": "a", "labels_column": "b", "empty_target": "none"})
    task.choose({"inputs_column": "a", "labels_column": "b", "label_separator": ";"})
    task.choose({"inputs_column": "a", "targets_column": "b", "empty_target": "none"})


@pytest.mark.parametrize("name", [field.name for field in _dependent(train_config.FIELDS.values())])
def test_a_setting_of_a_training(name: str) -> None:
    fields = list(train_config.FIELDS.values())
    field, only_with = train_config.FIELDS[name], train_config.FIELDS[name].metadata["only_with"]
    choice = {name: _another(field)}
    with raises(UsageError, "setting.inapplicable", name):
        train_config.build({**choice, **_without(fields, only_with)})
    assert getattr(train_config.build({**choice, **_with(fields, only_with)}), name) == choice[name]
    # The user's choice supersedes that of a recipe, and what depended on the recipe's choice goes with it.
    (by,) = only_with
    without = _without(fields, only_with).get(by, train_config.FIELDS[by].default)
    recipe = {**choice, **_with(fields, only_with)}
    assert getattr(train_config.build(recipe, {by: without}), name) == field.default


@pytest.mark.parametrize(
    "line",
    [
        "filter gopher --column text",
        "filter --limit 5",
        "filter gopher --delimiter ;",
        "filter gopher --split all",
        "eval --model run --scores",
        "predict rows.csv --model run --fresh",
        "table data out.csv --source rows.csv",
        "table data out.csv --trust-code",
    ],
)
def test_an_option_of_the_command_line_alone(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = SimpleNamespace(uri="rows.csv", files=())
    monkeypatch.setattr("t5prep.dataset.manifest.load", lambda data: SimpleNamespace(source=source))
    option = re.findall(r"--[\w-]+", line)[-1]
    refused("option.missing-prerequisite", option, command=line.split())


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("plan --sweep --lengths --data data", ["--sweep", "--lengths"]),
        ("predict rows.csv --model run --jsonl --format csv", ["--jsonl", "--format"]),
        ("train --data data --out run --check-step --profile 3", ["--check-step", "--profile"]),
        ("train --data data --out run --check-step --dry-run", ["--check-step", "--dry-run"]),
    ],
)
def test_options_that_exclude_each_other(line: str, options: list[str]) -> None:
    refused("option.conflict", *options, command=line.split())


def test_prerequisites_exist() -> None:
    """A misspelled prerequisite would refuse the option always."""
    for cls in (*CLASSES, Settings):
        names = {field.name for field in leaves(cls)}
        assert all(set(field.metadata["only_with"]) <= names for field in _dependent(leaves(cls)))
    for name in COMMANDS:
        command = main.get_command(click.Context(main), name)
        names = {parameter.name for parameter in command.params}
        assert all(set(option.only_with) <= names for option in command.params if isinstance(option, DependentOption))
