"""Trace one row from its source to its record and to the run trained on it, and format the trace as text."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from t5prep.dataset.prepared import Dataset
from t5prep.io.progress import number_of
from t5prep.options.fields import accepts, build
from t5prep.options.models import SourceOptions
from t5prep.preparation.row_trace import (
    ExampleFacts,
    FilterFacts,
    RecordFacts,
    RejectedRow,
    RelatedRecord,
    RowTrace,
    RowTracer,
    SourceFacts,
    SplitFacts,
    TokenFacts,
)
from t5prep.training import need_tensorflow

if TYPE_CHECKING:
    from t5prep.training.evaluate.one_record import RunFacts

_STEPS = 20  # maximum number of training steps in the text; the dict has all


@accepts(SourceOptions)
def why(id: str, data: str | Path, *, run: str = "", **options: object) -> dict[str, object]:
    """Trace one row of a dataset from its source to its record.

    The source is read again, and the steps of `prepare` process the row again. If the source is missing or has changed, the
    result has only the facts that the dataset stores, and `notes` says so.

    Args:
        id: The id of a record or of a rejected row, or a row of the source as `file:row` (from 1, without the header).
        data: The dataset's directory or gs:// prefix.
        run: A run trained on the dataset. Adds the steps that used the record, its loss and its answer.
        **options

    Returns:
        A dict with the following keys. A value that does not apply is None.

        * `source`: file, row, byte, values.
        * `example`: the input and target that the task made.
        * `filters`: the change by each filter.
        * `tokens`: the number of tokens before cutting, the number of cut ones, the ids, and the cut texts.
        * `split`: its name, and the number that drew it.
        * `record`: shard, number, byte, texts.
        * `rejected`: the reason, and the step that rejected the row.
        * `duplicates`: the rows that repeat this one. `also`: other rows with this id.
        * `notes`: sentences about missing facts.
        * `run`, with a run: `steps`, `loss`, `prediction`.

    Raises:
        DatasetError: There is no dataset, or the id is not in it.
        TokenizerError: The tokenizer is not the dataset's.
        UsageError: `run` is not a run, or was not trained on this dataset.

    Example:
        print(t5prep.why("mine.csv:12", "data/mine")["split"])
    """
    trace, run_facts = trace_row(id, data, build(SourceOptions, options, owner="why"), run=run)
    return vars(trace) | ({"run": run_facts} if run else {})


def trace_row(id: str, data: str | Path, options: SourceOptions, *, run: str) -> "tuple[RowTrace, RunFacts | None]":
    """Return the trace of a row, and what the `run` did with its record: None without a run or a record. See `why`."""
    dataset = Dataset(data, tokenizer=options.tokenizer)
    trace = RowTracer(dataset, source=options.source, trust_code=options.trust_code).trace(id)
    return trace, _in_run(trace.record, dataset, run=run) if run else None


def _in_run(record: RecordFacts | None, dataset: Dataset, *, run: str) -> "RunFacts | None":
    """Return the steps, loss and answer of a run for `record`, the record's facts in a trace; None for no record."""
    if record is None:
        return None
    need_tensorflow()
    from t5prep.training.evaluate.one_record import record_in_run

    return record_in_run(
        run,
        dataset,
        shard=record["shard"],
        number=record["number"],
        byte=record["byte"],
        size=record["bytes"],
        id=record["id"],
    )


def format_trace(trace: RowTrace, run_facts: "RunFacts | None" = None) -> Iterator[tuple[str, list[str]]]:
    """Yield (step, lines of text) for each step in the trace of a row, and for the run that used its record."""
    if source := trace.source:
        byte = "" if source["byte"] is None else f", byte {source['byte']:,} ({source['bytes']:,} bytes)"
        yield "source", [f"{source['file']}, row {source['row']:,}{byte}", *_values(source)]
    if example := trace.example:
        yield "task", list(_describe_example(example))
    if trace.filters:
        yield "filters", [line for entry in trace.filters for line in _filtered(entry)]
    if trace.tokens:
        yield "tokens", list(_tokens(trace.tokens))
    if trace.split:
        yield "split", [_split(trace.split)]
    if record := trace.record:
        segment = f", example {record['segment']} of it" if "segment" in record else ""
        location = f"{record['shard']}, record {record['number']:,} (counted from 0){segment}, byte {record['byte']:,}"
        texts = [f"input: {_one_line(record['input'])}", f"target: {_one_line(record['target'])}"]
        yield "record", [location, *texts, *(f"reference: {_one_line(text)}" for text in record["references"])]
    if run_facts:
        yield "run", list(_ran(run_facts))
    if rejection := trace.rejected:
        step_note = f" (at the step: {rejection['step']})" if rejection["step"] else ""
        yield "rejected", [f"{_one_line(rejection['reason'])}{step_note}"]
    if trace.duplicates:
        yield "repeated", [f"{entry['file']}, row {entry['row']:,}: {entry['reason']}" for entry in trace.duplicates]
    if trace.also:
        yield "also", [_describe_related(entry) for entry in trace.also]


def _values(source: SourceFacts) -> Iterator[str]:
    """Yield the columns of the row in its source, or its line of text."""
    for name, value in source.get("values", {}).items():
        yield f"{_one_line(name)}: {_one_line(str(value))}"
    if "text" in source:
        yield _one_line(source["text"])


def _describe_example(example: ExampleFacts) -> Iterator[str]:
    """Yield the input and target that the task made, or the reason why there is no example."""
    if example.get("blank"):
        yield "no example: the row is blank"
        return
    if "reason" in example:
        yield f"no example: {_one_line(example['reason'])}"
        return
    for part in example["inputs"]:
        never = " (never cut)" if part.get("protected") else ""
        yield "input: </s>" if part.get("eos") else f"input{never}: {_one_line(part['text'])}"
    yield f"target: {_one_line(example['target'])}"
    for text in example["references"]:
        yield f"reference: {_one_line(text)}"


def _filtered(filter_step: FilterFacts) -> Iterator[str]:
    """Yield the effect of one filter: rejected, passed, or the text before and after."""
    if "reason" in filter_step:
        yield f"{filter_step['filter']}: rejected, {_one_line(filter_step['reason'])}"
    elif not filter_step["changed"]:
        yield f"{filter_step['filter']}: passed, unchanged"
    else:
        yield f"{filter_step['filter']}: changed"
        yield f"before: {_one_line(filter_step['before'])}"
        yield f"after: {_one_line(filter_step['after'])}"


def _tokens(tokens: TokenFacts) -> Iterator[str]:
    """Yield the numbers of tokens of both sides, and the texts that were cut out."""
    part = f"; part {tokens['part']} of {tokens['parts']}" if "part" in tokens else ""
    sides = (
        ("input", tokens["inputs"], tokens.get("input_cut"), tokens.get("cut_input", [])),
        ("target", tokens["targets"], tokens.get("target_cut"), tokens.get("cut_target", [])),
    )
    yield (
        ", ".join(f"{number_of(n, f'{side} token')}{f' ({cut:,} cut)' if cut else ''}" for side, n, cut, _ in sides)
        + part
    )
    for side, _, _, cut_texts in sides:
        for text in cut_texts:
            yield f"cut from the {side}: {_one_line(text)}"


def _split(split: SplitFacts) -> str:
    """Return the split of the row, and why: the drawn number with the ranges of all splits, or the rule."""
    by = split.get("by")
    if by in ("id", "text", "group"):
        ranges = ", ".join(f"{name} {begin:.6g} to {end:.6g}" for name, (begin, end) in split["ranges"].items())
        return f"{split['name']}: the hash of its {by} is {split['number']:.9f} ({ranges})"
    reasons = {"task": "by the task", "file": "by its file", "all": "as all rows"}
    return f"{split['name']}: {reasons[by]}" if by else str(split["name"])


def _ran(run_facts: "RunFacts") -> Iterator[str]:
    """Yield the steps of a run that used the record, its loss, and the model's answer."""
    steps = ", ".join(f"{step:,}" for step in run_facts["steps"][:_STEPS]) + (
        ", …" if len(run_facts["steps"]) > _STEPS else ""
    )
    in_all = f"of the {run_facts['trained']:,} steps up to the newest checkpoint"
    times = (
        f"in {len(run_facts['steps']):,} {in_all}: {steps}"
        if steps
        else f"in none {in_all}, which read {run_facts['split']}"
    )
    yield f"{run_facts['run']}: {times}"
    yield f"loss {run_facts['loss']:.4f} by {run_facts['checkpoint']}"
    if run_facts["prediction"] is not None:
        file_note = f" (from {run_facts['kept_in']})" if run_facts["kept_in"] else ""
        yield f"answer, {'right' if run_facts['right'] else 'wrong'}{file_note}: {_one_line(run_facts['prediction'])}"


def _describe_related(related_row: RelatedRecord | RejectedRow) -> str:
    """Return a line about another row with this id: a record, or a rejected row."""
    if "shard" in related_row:
        return f"{related_row['id']}: {related_row['shard']}, record {related_row['number']:,}"
    return f"{related_row['file']}, row {related_row['row']:,}: {_one_line(related_row['reason'])}"


def _one_line(text: str) -> str:
    """Return a text on one line, with newlines as `\\n`."""
    return text.replace("\r", "\\r").replace("\n", "\\n")
