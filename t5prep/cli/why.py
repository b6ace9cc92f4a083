"""Define `t5prep why`: print the life of one row."""

from collections.abc import Iterator
from typing import Any

import click

from t5prep.cli import _model_options, _output

_WIDTH = 100  # of a terminal line
_STEPS = 20  # that are named; --json has all
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

    life = t5prep.why(id, **given)
    if as_json:
        _output.print_json(life)
        return
    for title, lines in _told(life):
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


def _told(life: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Yield each step's name, and its lines."""
    if source := life["source"]:
        byte = "" if source["byte"] is None else f", byte {source['byte']:,} ({source['bytes']:,} bytes)"
        yield "source", [f"{source['file']}, row {source['row']:,}{byte}", *_values(source)]
    if example := life["example"]:
        yield "task", list(_made(example))
    if life["filters"]:
        yield "filters", [line for one in life["filters"] for line in _filtered(one)]
    if life["tokens"]:
        yield "tokens", list(_tokens(life["tokens"]))
    if life["split"]:
        yield "split", [_split(life["split"])]
    if record := life["record"]:
        segment = f", example {record['segment']} of it" if "segment" in record else ""
        where = f"{record['shard']}, record {record['number']:,} (from 0){segment}, byte {record['byte']:,}"
        texts = [f"input: {_one_line(record['input'])}", f"target: {_one_line(record['target'])}"]
        yield "record", [where, *texts, *(f"also right: {_one_line(text)}" for text in record["references"])]
    if told := life.get("run"):
        yield "run", list(_in_run(told))
    if left := life["rejected"]:
        at = f" (left at: {left['step']})" if left["step"] else ""
        yield "rejected", [f"{_one_line(left['reason'])}{at}"]
    if life["duplicates"]:
        yield "repeated", [f"{one['file']}, row {one['row']:,}: {one['reason']}" for one in life["duplicates"]]
    if life["also"]:
        yield "also", [_other(one) for one in life["also"]]


def _values(source: dict[str, Any]) -> Iterator[str]:
    for name, value in source.get("values", {}).items():
        yield f"{_one_line(name)}: {_one_line(str(value))}"
    if "text" in source:
        yield _one_line(source["text"])


def _made(example: dict[str, Any]) -> Iterator[str]:
    if example.get("blank"):
        yield "the row is blank, and makes nothing"
        return
    if "reason" in example:
        yield f"no example: {_one_line(example['reason'])}"
        return
    for part in example["inputs"]:
        never = " (never cut)" if part.get("protected") else ""
        yield "input: </s>" if part.get("eos") else f"input{never}: {_one_line(part['text'])}"
    yield f"target: {_one_line(example['target'])}"
    for text in example["references"]:
        yield f"also right: {_one_line(text)}"


def _filtered(one: dict[str, Any]) -> Iterator[str]:
    if "reason" in one:
        yield f"{one['filter']}: rejected, {_one_line(one['reason'])}"
    elif not one["changed"]:
        yield f"{one['filter']}: passed, unchanged"
    else:
        yield f"{one['filter']}: changed"
        yield f"before: {_one_line(one['before'])}"
        yield f"after: {_one_line(one['after'])}"


def _tokens(tokens: dict[str, Any]) -> Iterator[str]:
    part = f"; part {tokens['part']} of {tokens['parts']}" if "part" in tokens else ""
    yield f"{tokens['inputs']:,} of the input, {tokens['targets']:,} of the target{part}"
    for side in ("input", "target"):
        for text in tokens.get(f"cut_{side}", ()):
            yield f"cut out of the {side}: {_one_line(text)}"


def _split(split: dict[str, Any]) -> str:
    by = split.get("by")
    if by in ("id", "text", "group"):
        ranges = ", ".join(f"{name} {begin:.6g} to {end:.6g}" for name, (begin, end) in split["ranges"].items())
        return f"{split['name']}: its {by} draws {split['number']:.9f} ({ranges})"
    why = {"task": "the task says so", "file": "its file is of this split", "all": "all rows are"}
    return f"{split['name']}: {why[by]}" if by else str(split["name"])


def _in_run(told: dict[str, Any]) -> Iterator[str]:
    steps = ", ".join(f"{step:,}" for step in told["steps"][:_STEPS]) + (", …" if len(told["steps"]) > _STEPS else "")
    in_all = f"of the {told['trained']:,} steps up to the newest checkpoint"
    times = f"in {len(told['steps']):,} {in_all}: {steps}" if steps else f"in none {in_all}, which read {told['split']}"
    yield f"{told['run']}: {times}"
    yield f"loss {told['loss']:.4f} by {told['checkpoint']}"
    if told["prediction"] is not None:
        kept = f" (kept in {told['kept_in']})" if told["kept_in"] else ""
        yield f"its answer, {'right' if told['right'] else 'wrong'}{kept}: {_one_line(told['prediction'])}"


def _other(one: dict[str, Any]) -> str:
    if "shard" in one:
        return f"{one['id']}: {one['shard']}, record {one['number']:,}"
    return f"{one['file']}, row {one['row']:,}: {_one_line(one['reason'])}"


def _one_line(text: str) -> str:
    """Return a text on one line, its newlines as `\\n`."""
    return text.replace("\r", "\\r").replace("\n", "\\n")
