"""Make the page of a training run: curves, the best checkpoint, answers, settings, and the manifests of its data.

A run may be one of a stranger, or a damaged one, so no value in its JSON files is trusted to have its type.
"""

import dataclasses
import json
import math
import operator
import re
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeGuard

from t5prep.dataset import manifest
from t5prep.errors import DatasetError, T5prepError, UsageError
from t5prep.io import paths
from t5prep.json_values import JSON, JSONObject
from t5prep.report import charts, pages
from t5prep.training.model.architecture import read_config
from t5prep.training.model.weight_layout import weight_layouts
from t5prep.training.objectives import lower_is_better
from t5prep.training.settings import train_config
from t5prep.training.settings.train_config import TrainConfig

SETTINGS, ANSWERS = "train.json", "eval.json"
# Metrics with a curve, in this order, beside the metric that selects the best checkpoint. Other metrics are rows of a
# table, because most of their curves look alike.
_FIRST = ("loss", "accuracy", "token_accuracy", "learning_rate", "gradient_norm")
# The metric `accuracy` of training counts tokens. An evaluation has the same metric under the name `token_accuracy`, and its
# `accuracy` counts classes.
_CURVE_NAMES = {"accuracy": "token_accuracy"}
# Keys of the speed, which stands in separate lines of metrics.jsonl.
_SPEED, _WAITING = "tokens_per_second", "waiting_for_input"
_INPUT_BOUND = 0.2  # INPUT_BOUND of t5prep.training.log, which cannot be imported without TensorFlow
# Names of metrics that may have a curve. A name becomes part of the SVG, which the page does not escape.
_NAME = re.compile(r"\w{1,40}", re.ASCII)
# Wrong answers in the output of `eval --predictions`: the title of a section, its key, and the maximum number shown.
_WRONG = (
    ("Wrong answers that the model was surest of", "worst", 20),
    ("Wrong answers drawn at random, of each class", "sample", 20),
)
_FAR = 8  # a loss that fell to less than an eighth gets a logarithmic scale: its end would be flat on a linear one


def is_run(path: str | Path) -> bool:
    """Check whether the folder or prefix `path` is a training run. Raises OutputError if a bucket cannot be read."""
    try:
        return SETTINGS in paths.names(path)
    except OSError:
        return False


def page(run: str | Path, *, answers: str | Path | None = None) -> str:
    """Return the HTML page of a run. `answers` is the output of `t5prep eval --predictions`; by default RUN/eval.json.

    Raises DatasetError if the run cannot be read, UsageError if the answers cannot be read.
    """
    try:
        settings = dict(json.loads(paths.read(paths.join(run, SETTINGS))))
        lines = sorted(_lines(run), key=lambda line: line.step)
        names = paths.names(run)
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise DatasetError(f"The run {run} cannot be read ({error}).", code="run.unreadable") from error
    evaluation = _answers(answers) if answers else {}
    if not answers and ANSWERS in names:
        evaluation = _answers(paths.join(run, ANSWERS), content=paths.read(paths.join(run, ANSWERS)))
    # The log has separate lines for the speed: `fast`. They are left out of the curves.
    fast = [line for line in lines if all(_is_number(line.numbers.get(name)) for name in (_SPEED, _WAITING))]
    lines = [line for line in lines if _SPEED not in line.numbers]
    data = list(_data(run, sorted(name for name in names if re.fullmatch(r"manifest-\d+\.json", name))))
    split = str(settings.get("eval_split", "validation"))
    best = _best(lines, split=split, metric=str(settings.get("metric", "auto")))
    curves = _curves(lines, split=split)
    chart_curves = {name: curve for name, curve in curves.items() if name in (*_FIRST, best and best.metric)}
    wrong = [
        (title, [answer for answer in _list(evaluation.get(key)) if isinstance(answer, dict)][:limit])
        for title, key, limit in _WRONG
    ]
    return pages.render(
        "training.html",
        title=f"{Path(str(run)).name or Path(run).absolute().name} · t5prep",
        run=str(run),
        settings=settings,
        steps=max((line.step for line in lines), default=0),
        charts=[(_called(name, curve), _render_chart(name, curve)) for name, curve in chart_curves.items()],
        best=best,
        others=_list_uncharted_metrics(
            [name for name in curves if name not in chart_curves], lines, split=split, best=best
        ),
        last=_last(lines),
        throughput=_throughput(fast),
        device=next((line.device for line in reversed(fast) if line.device), ""),
        confusion=_confusion(evaluation.get("metrics")),
        metrics=_numbers(evaluation.get("metrics")),
        wrong=wrong,
        # Class → the anchor of its first wrong answer on the page, for links from the table of classes. Reversed, because the
        # last assignment to a key counts.
        first_wrong={
            str(answer.get("target")): f"wrong-{kind}-{number}"
            for kind, (_, section_answers) in reversed(list(enumerate([section for section in wrong if section[1]], 1)))
            for number, answer in reversed(list(enumerate(section_answers, 1)))
        },
        classes=_classes(evaluation.get("metrics")),
        checkpoint=evaluation.get("checkpoint", ""),
        recipe=nearest_recipe(settings),
        parameters=_parameters(run),
        took=_step_seconds(
            fast, settings=settings, data=[dataset_manifest for _, dataset_manifest in data if dataset_manifest]
        ),
        data=data,
    )


class _Line(NamedTuple):
    """Hold a line of metrics.jsonl: its step, its numbers by name, and its device, or ""."""

    step: int
    numbers: dict[str, float]
    device: str


def _lines(run: str | Path) -> Iterator[_Line]:
    """Yield the lines of metrics.jsonl. Malformed lines are skipped: a killed run may have cut its last line."""
    try:
        content = paths.read(paths.join(run, "metrics.jsonl")).decode("utf-8", "replace")
    except FileNotFoundError:
        return
    for line in content.splitlines():
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(values, dict) and isinstance(step := values.pop("step", None), int):
            device = values.get("device")
            yield _Line(step, _numbers(values), device if isinstance(device, str) else "")


def _curves(lines: list[_Line], *, split: str) -> dict[str, dict[str, tuple[list[float], list[float]]]]:
    """Return metric → {"training" or "evaluation": (steps, values)}. Constant metrics are left out.

    `lines` are sorted by step. A run that resumed from a checkpoint measured some steps twice: the last value counts.
    """
    curves: dict[str, dict[str, tuple[list[float], list[float]]]] = {}
    for line in lines:
        for key, value in line.numbers.items():
            if value != value or not _NAME.fullmatch(key):  # NaN
                continue
            is_evaluation = key.startswith(f"{split}_")
            name = key.removeprefix(f"{split}_") if is_evaluation else _CURVE_NAMES.get(key, key)
            steps, values = curves.setdefault(name, {}).setdefault(
                "evaluation" if is_evaluation else "training", ([], [])
            )
            if steps and steps[-1] == line.step:
                values[-1] = value
                continue
            steps.append(line.step)
            values.append(value)
    order = sorted(curves, key=lambda name: (_FIRST.index(name) if name in _FIRST else len(_FIRST), name))
    return {name: curves[name] for name in order if any(len(set(values)) > 1 for _, values in curves[name].values())}


class _Best(NamedTuple):
    """Hold the metric that selects the best checkpoint, its best value, and that checkpoint's step."""

    metric: str
    value: float
    step: int
    split: str


def _best(lines: list[_Line], *, split: str, metric: str) -> _Best | None:
    """Return the best evaluation in `lines`; None before the first one.

    `metric` is the run's setting; "auto" is the accuracy if there is one, else the loss.
    """
    if metric == "auto":
        metric = "accuracy" if any(f"{split}_accuracy" in line.numbers for line in lines) else "loss"
    name = f"{split}_{metric}"
    scored = [(line.numbers[name], line.step) for line in lines if _is_number(line.numbers.get(name))]
    if not scored:
        return None
    pick = min if lower_is_better(metric) else max
    value, step = pick(scored, key=operator.itemgetter(0))  # the first of equal values, as in training
    return _Best(metric, value, step, split)


def _list_uncharted_metrics(
    names: list[str], lines: list[_Line], *, split: str, best: _Best | None
) -> list[tuple[str, float | None, float | None]]:
    """Return (name, value at the best checkpoint, last value) of the metrics `names`, which have no chart."""
    last = _last(lines)
    at_best = _last([line for line in lines if best and line.step == best.step])
    return [(name, at_best.get(f"{split}_{name}"), last.get(f"{split}_{name}")) for name in names]


def _called(name: str, curve: dict[str, tuple[list[float], list[float]]]) -> str:
    """Return the caption of a chart. A chart with two lines has a legend; a single line of evaluation is named here."""
    return name if len(curve) > 1 or "training" in curve else f"{name}, of evaluation"


def _render_chart(name: str, curve: dict[str, tuple[list[float], list[float]]]) -> str:
    """Return the SVG of a metric. A loss that fell by more than a factor of `_FAR` has a logarithmic scale."""
    values = [value for _, line in curve.values() for value in line]
    return charts.curves(curve, quantity=name, log=name == "loss" and 0 < _FAR * min(values) < max(values))


def _throughput(lines: list[_Line]) -> dict[str, object]:
    """Return the template's variables about the speed, given the lines with a speed; {} without any.

    `speed` and `waiting` are the medians of tokens a second and of the share of time waiting for input. `bound` is True if
    the input limits the speed. There are `charts` for several lines.
    """
    if not lines:
        return {}
    speeds, shares = ([float(line.numbers[name]) for line in lines] for name in (_SPEED, _WAITING))
    waiting, speed_charts = statistics.median(shares), []
    if len(lines) > 1:
        steps = [line.step for line in lines]
        speed_charts = [
            ("tokens a second", charts.curves({"": (steps, speeds)}, quantity="tokens a second", zero=True)),
            (
                "% of the time waiting for input",
                charts.curves(
                    {"": (steps, [100 * share for share in shares])}, quantity="waiting for input", zero=True
                ),
            ),
        ]
    return {
        "speed": statistics.median(speeds),
        "waiting": waiting,
        "bound": waiting > _INPUT_BOUND,
        "charts": speed_charts,
    }


def _is_number(value: JSON) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _last(lines: list[_Line]) -> dict[str, float]:
    """Return the last value of each number in `lines`, by name."""
    return {key: value for line in lines for key, value in line.numbers.items()}


def _answers(path: str | Path, *, content: bytes | None = None) -> JSONObject:
    """Return the JSON object of a file of answers; `content` is its bytes, if read already. Raises UsageError."""
    try:
        values = json.loads(paths.read(path) if content is None else content)
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(
            f"{path} holds no answers ({error}). Write them: t5prep eval --model RUN --predictions FILE",
            code="answer.missing",
        ) from error
    if not isinstance(values, dict):
        raise UsageError(
            f"{path} holds no answers. Write them: t5prep eval --model RUN --predictions FILE", code="answer.missing"
        )
    return values


def _confusion(metrics: JSON) -> tuple[list[str], list[tuple[str, list[tuple[int, float]]]]] | None:
    """Return the column names and (label, [(count, share of the row), ...]) rows; None without a confusion matrix."""
    if not isinstance(metrics, dict) or not (confusion := _list(metrics.get("confusion"))):
        return None
    labels = [str(label) for label in _list(metrics.get("labels"))]
    rows = []
    for label, row in zip(labels, confusion, strict=False):
        counts = [number for number in _list(row) if isinstance(number, int)]
        rows.append((label, [(number, number / max(1, sum(counts))) for number in counts]))
    return [*labels, "(other)"], rows


def _classes(metrics: JSON) -> list[tuple[str, dict[str, float]]]:
    """Return (class, scores) with precision, recall, F1 and support. Classes with other values than numbers are left out."""
    per_class = metrics.get("per_class") if isinstance(metrics, dict) else None
    rows = per_class.items() if isinstance(per_class, dict) else ()
    score_names = ("precision", "recall", "f1", "support")
    return [
        (str(label), {name: scores[name] for name in score_names})
        for label, scores in rows
        if isinstance(scores, dict) and all(_is_number(scores.get(name)) for name in score_names)
    ]


def _parameters(run: str | Path) -> int:
    """Return the number of the model's weights by the run's config.json; 0 if this file cannot be read."""
    try:
        shape = read_config(paths.read(paths.join(run, "config.json")), location="config.json")
    except (OSError, T5prepError):
        return 0
    return sum(math.prod(layout.shape) for layout in weight_layouts(shape).values())


def _step_seconds(lines: list[_Line], *, settings: JSONObject, data: list[manifest.Manifest]) -> float:
    """Return the estimated seconds of all training steps: tokens divided by the logged speed. Return 0 if unknown.

    `lines` are those with a speed, and `data` the manifests of the run. The time of evaluating and saving is not included,
    because the speed does not include it.
    """
    splits = [dataset_manifest.splits.get(str(settings.get("split", "train"))) for dataset_manifest in data]
    lengths = [split.tokens_of_record for split in splits if split]
    rates = [rate for rate in _list(settings.get("rates")) if _is_number(rate)]
    shares = rates or [split.records for split in splits if split]
    batch = settings.get("batch")
    if not lengths or len(shares) != len(lengths) or not _is_number(batch) or sum(shares) <= 0:
        return 0.0
    tokens = batch * sum(map(operator.mul, lengths, shares)) / sum(shares)
    seconds, previous_step = 0.0, 0
    for line in lines:
        seconds += max(0, line.step - previous_step) * tokens / max(line.numbers[_SPEED], 1e-9)
        previous_step = line.step
    return seconds


def _numbers(metrics: JSON) -> dict[str, float]:
    """Return the numbers among a JSON object's values, by name; none for any other JSON value."""
    values = metrics if isinstance(metrics, dict) else {}
    return {
        name: value for name, value in values.items() if isinstance(value, int | float) and not isinstance(value, bool)
    }


def _list(value: JSON) -> list[JSON]:
    return value if isinstance(value, list) else []


def _data(run: str | Path, names: list[str]) -> Iterator[tuple[str, manifest.Manifest | None]]:
    """Yield ("", manifest) for each copy of a manifest in a run, or (error, None) if it cannot be read."""
    for name in names:
        try:
            yield "", manifest.loads(paths.read(paths.join(run, name)), location=paths.join(run, name))
        except DatasetError as error:
            yield str(error), None


# Settings that no recipe sets, because they are paths of the run. The comparison ignores them.
_ITS_OWN = frozenset({"data", "out", "tokenizer"})


class Nearest(NamedTuple):
    """Hold the `name` of the recipe that is most similar to a run's settings ("" for the defaults), and the differences.

    `differs` has (setting, value of the recipe, value of the run).
    """

    name: str
    differs: list[tuple[str, JSON, JSON]]


def nearest_recipe(settings: JSONObject) -> Nearest:
    """Return the built-in recipe with the fewest differences from `settings`, the content of a run's train.json.

    >>> nearest_recipe({**json.loads(train_config.dumps(TrainConfig())), "batch": 64}).differs
    [('batch', 128, 64)]
    """
    candidates = [Nearest("", _differing(settings, {}))]
    for name in train_config.recipes():
        try:
            recipe = train_config.read_recipe(name)
        except UsageError:
            continue
        candidates.append(Nearest(name, _differing(settings, recipe)))
    return min(candidates, key=lambda candidate: len(candidate.differs))


def _differing(settings: JSONObject, recipe: JSONObject) -> list[tuple[str, JSON, JSON]]:
    """Return (setting, value of `recipe`, value of `settings`) for each setting with different values."""
    usual = json.loads(json.dumps(dataclasses.asdict(TrainConfig()))) | dict(recipe)
    setting_names = (name for name in usual if name in settings and name not in _ITS_OWN)
    return [(name, usual[name], settings[name]) for name in setting_names if usual[name] != settings[name]]
