"""Define `t5prep predict` and `eval`, which use a trained model."""

import collections
import itertools
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from t5prep.cli import _options, _output
from t5prep.cli._addresses import ADDRESS
from t5prep.io.progress import Progress, number_of
from t5prep.options.models import EvaluateOptions, PredictOptions

if TYPE_CHECKING:
    from t5prep.training.evaluate.evaluator import Wrong
    from t5prep.training.predict.predictor import Answer


@click.command("predict")
@click.argument("file", type=ADDRESS, default="-")
@click.option("--model", type=ADDRESS, required=True, help="Run, Hugging Face directory, or Hub name.")
@click.option("--out", type=click.Path(path_type=Path), help="Output file; an interrupted command resumes it.")
@click.option(
    "--to", default="", help="Output format: text, jsonl, csv, tsv or json [default: by the name of --out, or text]."
)
@click.option(
    "--fresh",
    is_flag=True,
    cls=_options.DependentOption,
    only_with=("out",),
    help="Start from scratch, and replace --out.",
)
@click.option("--jsonl", is_flag=True, help="Short for --format jsonl.")
@_options.options(PredictOptions)
@_output.as_json
def predict_command(
    file: str,
    model: str,
    out: Path | None,
    to: str,
    fresh: bool,
    jsonl: bool,
    format: str,
    answers: int,
    scores: bool,
    as_json: bool,
    **option_values: object,
) -> None:
    """Answer the rows of FILE with a model.

    FILE is a table, lines of text, any source that `prepare` reads, or "-" for standard input.

    The task that the run was trained on makes the inputs. So a table needs the same columns, without the target. A line
    of text is the text of one row. Each row has one answer, in order. A row without an input has a reason instead.

    \b
    Example:
      t5prep predict questions.csv --model runs/sample --out answers.csv
      echo "quality: How do I sort a list?" | t5prep predict --model runs/sample --as-text
    """
    import t5prep
    from t5prep.errors import SourceError, UsageError
    from t5prep.training.predict import answer_files

    if as_json:
        if to not in ("", "json"):
            raise UsageError(
                f"--json and --to {to} ask for two formats of the answers. Use either --json or --to, not both.",
                code="option.conflict",
            )
        to = "json"
    if jsonl and format not in ("", "jsonl"):
        raise UsageError(
            f"--jsonl and --format {format} name two formats of the rows. Use either --jsonl or --format, not both.",
            code="option.conflict",
        )
    kind = to or answer_files.of_name(out.name if out else "")
    answer_files.Writer(kind)  # raises for an unknown format now, before the model is opened
    if scores and kind == "text":
        raise UsageError(
            "--scores needs a format with fields, but lines of text hold only answers. Use --to jsonl (or "
            "csv, tsv, json).",
            code="option.missing-prerequisite",
        )
    if answers > 1 and kind not in ("jsonl", "json"):
        raise UsageError(
            f"--answers {answers} needs a format for several answers, but {kind} holds one answer per "
            "row. Use --to jsonl (or json).",
            code="option.missing-prerequisite",
        )
    if file == "-" and sys.stdin is None:
        raise UsageError(
            "Standard input is closed, so no rows can be read. Name a file of rows.", code="source.stdin-closed"
        )
    if file == "-" and sys.stdin.isatty():
        _output.say("Type one input per line, and end with Ctrl-D. Or name a file of inputs.")
    predictions = t5prep.predict(
        model,
        sys.stdin.buffer if file == "-" else file,
        format=format or ("jsonl" if jsonl else ""),
        answers=answers,
        scores=scores or answers > 1,
        **option_values,
    )
    if predictions.note:
        _output.say(predictions.note)
    with Progress("answered", total=predictions.bytes) as progress:

        def watch(batch: list["Answer"]) -> None:
            progress.add(bytes=sum(len(prediction.input) for prediction in batch), rows=len(batch))

        if out:
            resumed_rows = predictions.write(out, to=to, fresh=fresh, watch=watch)
        else:
            predictions.write_to(sys.stdout, to=to or "text", watch=watch)
    for sentence in predictions.sentences():
        _output.say(sentence)
    if out:
        went_on = f" ({resumed_rows:,} of them written by an earlier run)" if resumed_rows else ""
        _output.say(f"{out}: {number_of(predictions.counts.rows, 'answer')}{went_on}")
    if 0 < predictions.counts.rows == predictions.counts.missing.total():
        raise SourceError(
            f"None of the {predictions.counts.rows:,} rows of {predictions.source.uri} has an input.",
            code="row.text-missing",
        )


WORST_PRINTED = 5  # wrong answers that `eval` prints under each title; --predictions and --json have all


class _MetricOption(click.Option):
    """Add the names of metrics to the help of `--metric`.

    They are imported only when `--help` is printed, because their module imports numpy, which takes long.
    """

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the option and its help, with the metrics that can be requested. Metrics of tokens are always computed."""
        from t5prep.tasks.task import METRICS, TOKEN_METRICS

        record = super().get_help_record(ctx)
        names = ", ".join(sorted(set(METRICS) - set(TOKEN_METRICS)))
        return record and (record[0], record[1].replace(" [default", f": {names} [default"))


@click.command("eval")
@click.option("--model", type=ADDRESS, required=True, help="Run, Hugging Face directory, or Hub name.")
@_options.options(EvaluateOptions, metric={"cls": _MetricOption})
@click.option(
    "--scores",
    is_flag=True,
    cls=_options.DependentOption,
    only_with=("file", "as_json"),
    help="With --predictions or --json: add the scores of each prediction.",
)
@click.option(
    "--predictions", "file", type=ADDRESS, help="File for the metrics, predictions and worst examples, as JSON."
)
@_output.as_json
def eval_command(model: str, scores: bool, file: str | None, as_json: bool, **option_values: object) -> None:
    """Score a model on a split of a dataset.

    Classifications are scored by accuracy and a confusion matrix, generated answers by the task's metrics.

    \b
    Example:
      t5prep eval --model runs/sample --data data/sample --split validation --split train
    """
    import t5prep
    from t5prep.io import atomic_files

    if file:  # checked before the evaluation; only an earlier output of this command is replaced
        atomic_files.check_writable(Path(file), option="--predictions", begins=b'{\n  "checkpoint": ')
    evaluation = t5prep.evaluate(model, **option_values)
    evaluation_json = evaluation.to_json(scores=scores)
    if file:
        atomic_files.write_whole(
            Path(file),
            (json.dumps(evaluation_json, ensure_ascii=False, indent=2) + "\n").encode(),
            option="--predictions",
        )
    if as_json:
        _output.print_json(evaluation_json)
        return
    for result in evaluation.evaluations or [evaluation]:
        if evaluation.evaluations:
            click.echo(f"\n{result.data}, {result.split}")
        _output.print_metrics(result.metrics, is_asked=bool(option_values.get("metric")))
        _print_wrong("Wrong answers with the highest losses:", result.worst[:WORST_PRINTED])
        _print_wrong("Wrong answers drawn at random, of each class:", _one_of_each(result.sample))


def _one_of_each(sample: Sequence["Wrong"]) -> list["Wrong"]:
    """Return up to WORST_PRINTED wrong answers, by turns from each class: first one of each, then a second one."""
    of_class = collections.defaultdict[str, list["Wrong"]](list)
    for wrong in sample:
        of_class[wrong.target].append(wrong)
    in_turn = itertools.chain.from_iterable(itertools.zip_longest(*of_class.values()))
    return [wrong for wrong in in_turn if wrong][:WORST_PRINTED]


def _print_wrong(title: str, wrong_answers: Sequence["Wrong"]) -> None:
    """Print wrong answers under a title: id, answer, target, loss, and the start of the input."""
    if wrong_answers:
        click.echo(f"\n{title}")
    for wrong in wrong_answers:
        click.echo(f"\n{wrong.id}: predicted {wrong.prediction}, expected {wrong.target}, loss {wrong.loss:.2f}")
        click.echo(click.wrap_text(wrong.input[:400], width=96, initial_indent="  ", subsequent_indent="  "))
