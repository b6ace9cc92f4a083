"""Define `t5prep why`: print the life of one row."""

from typing import Any

import click

from t5prep.cli import _model_options, _output

_WIDTH = 100  # of a terminal line
_LONGEST = 2_000  # characters of one text; --json has all


@click.command("why")
@click.argument("id")
@click.option("--data", required=True, help="The prepared dataset.")
@click.option("--run", default="", help="A run on it: the steps that saw the record, its loss and its answer.")
@click.option("--source", default="", help="Where its source lies now, if it was moved.")
@click.option("--tokenizer", help="The tokenizer, if the one that the manifest names cannot be found.")
@_model_options.trust_code
@_output.as_json
def why_command(id: str, as_json: bool, **given: Any) -> None:
    """Tell the life of one row: ID is that of a record or a rejected row, or a row of the source as FILE:ROW.

    In the order of the data flow: where it stands in its source, what the task made of it, what filters changed, its
    tokens and what was cut, the split and the number that drew it, its shard, its duplicates; or where it left, and why.

    \b
    Example:
      t5prep why 12 --data data/sample
      t5prep why mine.csv:12 --data data/sample --run runs/sample
    """
    import t5prep
    from t5prep.report.why import told

    life = t5prep.why(id, **given)
    if as_json:
        _output.print_json(life)
        return
    for title, lines in told(life):
        for number, line in enumerate(lines):
            label = _output.colour(f"{title:<10}" if not number else " " * 10, bold=True)
            click.echo(label + _wrapped(line))
    for note in life["notes"]:
        _output.say(note)


def _wrapped(line: str) -> str:
    line = line if len(line) <= _LONGEST else f"{line[:_LONGEST]}… ({len(line):,} characters; all: --json)"
    if len(line) <= _WIDTH - 10:
        return line
    return click.wrap_text(line, width=_WIDTH - 10, subsequent_indent="  ").replace("\n", "\n" + " " * 10)
