"""Print the output of commands: data to stdout, messages to stderr, and colours only on a terminal."""

import json
import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from t5prep.cli import _terminal
from t5prep.io.addresses import Address

if TYPE_CHECKING:
    from t5prep.training.evaluate.evaluator import Prediction


def say(text: str) -> None:
    """Print a message on stderr."""
    click.echo(text, err=True)


def print_next(command: str, *, remark: str = "") -> None:
    """Print the t5prep command to type next; `command` has no program name. A shell reads `remark` as a comment.

    The program is printed with its path if the shell would not find it by its name, as without an activated environment.
    """
    program = sys.argv[0] if os.path.basename(sys.argv[0]) == "t5prep" and not shutil.which("t5prep") else "t5prep"
    click.echo(f"next: {shlex.quote(program)} {command}" + (f"  # {remark}" if remark else ""))


ARGUMENTS = "t5prep.arguments"  # in the `meta` of click's context: the command line


def retyped(*, without: str = "", add: Sequence[str] = ()) -> str:
    """Return the running command line, without the program's name, without the flag `without`, and with `add` at its end.

    Addresses have their public form, because what is printed must hold no credential.
    """
    typed = click.get_current_context().meta[ARGUMENTS]
    end = typed.index("--") if "--" in typed else len(typed)
    words = [word for word in typed[:end] if word != without]
    return shlex.join([*map(Address, words), *add, *typed[end:]])


def print_json(value: object) -> None:
    """Print one JSON object on stdout."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))


def show(value: object, text: str, *, as_json: bool) -> None:
    """Print a result on stdout: with `as_json` the value as one JSON object, else the text."""
    print_json(value) if as_json else click.echo(text)


def colour(text: str, *, fg: str | None = None, bold: bool = False, dim: bool = False) -> str:
    """Return the text with a style if stdout is a terminal and NO_COLOR is not set, else unchanged."""
    return (
        _terminal.styled(text, fg=fg, bold=bold, dim=dim)
        if sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        else text
    )


as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")


def print_metrics(metrics: Mapping[str, Any], *, is_asked: bool) -> None:
    """Print a line for each number in `metrics`. For classes, also print their scores and the confusion matrix.

    Of texts that are classes, ROUGE and token F1 say nothing beside the accuracy. They are printed if the user asked for
    metrics (`is_asked`), and --json always has them.
    """
    from t5prep.training.evaluate.metrics import DEFAULT_METRICS, METRICS

    hidden = set[str]()
    if "per_class" in metrics and not is_asked:
        hidden = {number for name in DEFAULT_METRICS for number in METRICS[name].numbers}
    for name, value in metrics.items():
        if isinstance(value, int | float) and name not in hidden:
            click.echo(f"{name:<18} {value:,.4f}" if isinstance(value, float) else f"{name:<18} {value:,}")
    if "per_class" in metrics:
        width = max(8, *(len(label) for label in metrics["labels"])) + 2
        click.echo(
            "\n" + "class".ljust(width) + "".join(name.rjust(11) for name in ("precision", "recall", "f1", "support"))
        )
        for label, score in metrics["per_class"].items():
            shares = "".join(f"{score[name]:11.4f}" for name in ("precision", "recall", "f1"))
            click.echo(f"{label.ljust(width)}{shares}{score['support']:11,}")
    if "confusion" in metrics:
        labels = list(metrics["labels"])
        width = max(8, *(len(label) for label in labels)) + 2
        click.echo("\n" + "target".ljust(width) + "".join(name.rjust(width) for name in [*labels, "(other)"]))
        for label, row in zip(labels, metrics["confusion"], strict=True):
            click.echo(label.ljust(width) + "".join(f"{number:,}".rjust(width) for number in row))


def print_predictions(predictions: Sequence["Prediction"]) -> None:
    """Print a table of predictions with the columns: ok or wrong, id, prediction, target."""
    if not predictions:
        return
    room = max(16, (shutil.get_terminal_size((100, 24)).columns - 22) // 2)
    click.echo(f"{'':<6}{'id':<16}{'prediction':<{room}}target")
    for row in predictions:
        right = "ok" if row["prediction"] in row["references"] else "wrong"
        prediction, target = (cut(text, room - 1) for text in (row["prediction"], row["references"][0]))
        click.echo(f"{right:<6}{cut(row['id'], 15):<16}{prediction:<{room}}{target}")


def cut(text: str, width: int) -> str:
    """Return a text on one line of at most `width` characters. A cut end becomes `…`."""
    flat = " ".join(text.split())
    return flat if len(flat) <= width else flat[: width - 1] + "…"
