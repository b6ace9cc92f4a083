"""Print metrics, confusion matrices and predictions as text."""

import shutil
from collections.abc import Mapping, Sequence
from typing import Any

import click


def print_metrics(metrics: Mapping[str, Any]) -> None:
    """Print a line for each number, then for classes the scores of each one and the confusion matrix."""
    for name, value in metrics.items():
        if isinstance(value, int | float):
            click.echo(f"{name:<18} {value:,.4f}" if isinstance(value, float) else f"{name:<18} {value:,}")
    if "per_class" in metrics:
        width = max(8, *(len(label) for label in metrics["labels"])) + 2
        click.echo(
            "\n" + "class".ljust(width) + "".join(name.rjust(11) for name in ("precision", "recall", "f1", "support"))
        )
        for label, own in metrics["per_class"].items():
            shares = "".join(f"{own[name]:11.4f}" for name in ("precision", "recall", "f1"))
            click.echo(f"{label.ljust(width)}{shares}{own['support']:11,}")
    if "confusion" in metrics:
        labels = list(metrics["labels"])
        width = max(8, *(len(label) for label in labels)) + 2
        click.echo("\n" + "target".ljust(width) + "".join(name.rjust(width) for name in [*labels, "(other)"]))
        for label, row in zip(labels, metrics["confusion"], strict=True):
            click.echo(label.ljust(width) + "".join(f"{number:,}".rjust(width) for number in row))


def print_predictions(predictions: Sequence[Mapping[str, Any]]) -> None:
    """Print a table: right or wrong, id, prediction, target."""
    if not predictions:
        return
    room = max(16, (shutil.get_terminal_size((100, 24)).columns - 22) // 2)
    click.echo(f"{'':<6}{'id':<16}{'prediction':<{room}}target")
    for row in predictions:
        right = "ok" if row["prediction"] in row["references"] else "wrong"
        prediction, target = (_cut(text, room - 1) for text in (row["prediction"], row["references"][0]))
        click.echo(f"{right:<6}{_cut(row['id'], 15):<16}{prediction:<{room}}{target}")


def _cut(text: str, width: int) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= width else flat[: width - 1] + "…"
