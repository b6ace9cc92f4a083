"""An option is one field: its command, its Python function, the documentation and the checks come from it."""

import dataclasses
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from raised import assert_error, raises

import t5prep
from t5prep.cli import main
from t5prep.cli.prepare_command import of_task
from t5prep.dataset.settings import Settings
from t5prep.errors import UsageError
from t5prep.options.fields import build, flag, leaves, sentence
from t5prep.options.models import EmbedOptions, EvaluateOptions, ExportOptions, PlanOptions, PredictOptions
from t5prep.preparation import task_settings
from t5prep.tasks import registry
from t5prep.tasks.targets import TARGETS
from t5prep.tasks.task import ChosenTask, Masks
from t5prep.tokens import loading

OPTIONS = {
    "eval": EvaluateOptions,
    "predict": PredictOptions,
    "embed": EmbedOptions,
    "plan": PlanOptions,
    "export": ExportOptions,
}
FUNCTIONS: list[tuple[Callable[..., Any], type]] = [
    *((t5prep.evaluate, EvaluateOptions), (t5prep.predict, PredictOptions), (t5prep.embed, EmbedOptions)),
    *((function, PlanOptions) for function in (t5prep.plan, t5prep.plan_sweep, t5prep.plan_lengths)),
]


@pytest.mark.parametrize("name", OPTIONS)
def test_a_command_has_each_field_as_an_option(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    params = {param.name: param for param in command.params if isinstance(param, click.Option)}
    for field in leaves(OPTIONS[name]):
        if field.metadata["python_only"]:
            assert field.name not in params or field.name == "settings"  # which --set has, as KEY=VALUE
        else:
            assert (params[field.name].help, params[field.name].opts) == (sentence(field), [flag(field.name)])


@pytest.mark.parametrize(("function", "cls"), FUNCTIONS)
def test_a_function_has_each_field_as_a_parameter(function: Callable[..., Any], cls: type) -> None:
    parameters = inspect.signature(function).parameters
    for field in leaves(cls):
        assert (parameters[field.name].default, parameters[field.name].annotation) == (field.default, field.type)
        assert f"\n    {field.name}: {sentence(field)}\n" in (inspect.getdoc(function) or "")


@pytest.mark.parametrize(
    ("cls", "option_values", "error"),
    [
        (PredictOptions, {"beam": 2}, ("option.unknown", "predict", '"beam"', '"beams"')),
        (PredictOptions, {"beams": "4"}, ("option.malformed", "--beams '4'")),
        (PredictOptions, {"batch": 0}, ("option.out-of-range", "--batch 0", "1")),
        (PredictOptions, {"delimiter": "ab"}, ("option.malformed", '--delimiter "ab"')),
        (EvaluateOptions, {"answers": 2}, ("option.unknown", "predict", '"answers"')),
        (EvaluateOptions, {"split": 3}, ("option.malformed", "--split 3")),
        (EmbedOptions, {"as_text": True}, ("option.unknown", "predict", '"as_text"')),
        (PlanOptions, {"batch": [64, 0]}, ("option.out-of-range", "--batch 0", "1")),
        (PlanOptions, {"batch": [64, 0.5]}, ("option.malformed", "--batch [64, 0.5]")),
        (PlanOptions, {"price": float("nan")}, ("option.out-of-range", "--price nan")),
        (PlanOptions, {"embed": True, "largest": True}, ("option.inapplicable", "--embed", "--largest")),
        (ExportOptions, {"beams": 4}, ("option.missing-prerequisite", "--beams 4", "--format savedmodel")),
        (
            ExportOptions,
            {"format": "savedmodel", "license": "mit"},
            ("option.missing-prerequisite", "--license mit", "--format hf"),
        ),
    ],
)
def test_what_a_field_does_not_take_is_a_sentence(
    cls: type, option_values: dict[str, Any], error: tuple[str, ...]
) -> None:
    with raises(UsageError, *error):
        build(cls, option_values, owner="predict")


def test_one_value_is_a_list_of_it_and_a_path_is_a_text() -> None:
    assert build(PlanOptions, {"batch": 64, "tpu": "v5e-8", "data": Path("data")}) == PlanOptions(
        batch=(64,), tpu=("v5e-8",), data="data"
    )


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("plan --lengths --data d --price 1.2", "--price 1.2"),
        ("plan --lengths --data d --input-length 64", "--input-length 64"),
        ("plan --sweep --model t5-small --largest", "--largest"),
        ("plan --sweep --model t5-small --save run", "--save run"),
    ],
)
def test_an_option_that_a_plan_has_no_use_for_is_refused(line: str, option: str) -> None:
    """`plan --lengths` took a price, and said none."""
    result = CliRunner().invoke(main, line.split())
    assert result.exit_code == 1
    assert_error(result.stderr, "option.inapplicable", line.split()[1], option)


def _refused(chosen: ChosenTask, choices: dict[str, object]) -> bool:
    try:
        settings = task_settings.requested(chosen, choices)
        task_settings.check(settings, chosen)
        if not isinstance(chosen.spans, Masks):  # which need an encoder's tokenizer
            task_settings.with_tokenizer(settings, chosen, loading.load("sample:"))
    except UsageError:
        return True
    return False


@pytest.mark.parametrize("name", registry.installed()[0])
def test_help_leaves_out_the_options_whose_other_values_the_task_refuses(name: str) -> None:
    definition = registry.get(name)
    needed = {"inputs_column": "a", "targets_column": "b"} if name == "text2text" else {}
    chosen = definition.choose(needed)
    hidden = {option.name for option in of_task(definition.task) if isinstance(option, click.Option) and option.hidden}
    for field in dataclasses.fields(Settings):
        values = [True] if field.default is False else [each for each in field.metadata.get("choices", ()) if each]
        refused = all(_refused(chosen, {field.name: each}) for each in values if each != field.default)
        if values and field.name not in ("dedup", "target", "masks"):
            assert (field.name in hidden) == refused, field.name
    if "target" in hidden and not isinstance(chosen.spans, Masks):
        assert all(_refused(chosen, {"target": each}) for each in TARGETS if each not in ("text", "tokens"))
