"""What must not change does not: each option of `prepare` has a relation, two ways to ask for one dataset.

`test_every_option_has_a_relation` walks the options of the command line and fails for one that has neither a relation nor a
reason in EXEMPT. `test_options_metamorphic` holds the order and the format of rows against each option.
"""

import contextlib
import csv
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import encoders
import pyarrow as pa
import pyarrow.parquet
import pytest
import small_corpora

import t5prep
from t5prep.cli import main

Rows = list[dict[str, Any]]
Record = dict[str, Any]
ROWS: Rows = [
    {
        "id": f"r{n}",
        "text": f"question {n} about a river and {n % 5} stones <b>in</b> the valley {'of lamps ' * (n % 4)}é",
        "answer": f"answer {n % 4}",
        "other": f"context {n}",
        "part": ["train", "test"][n % 3 == 0],
        "kind": ["low", "high"][n % 2],
        "page": f"page {n // 3}",
    }
    for n in range(18)
]
REPEATS: Rows = [{**ROWS[n], "id": f"again {n}"} for n in (2, 5)]
UNLIKE: Rows = [{**row, "text": " ".join(f"word{n * 97 + k}" for k in range(12))} for n, row in enumerate(ROWS)]
COLUMNS = {"inputs_column": "text", "targets_column": "answer", "id_column": "id"}
TRAIN = {"splits": {"train": 1.0}}


def table(rows: Rows, *, delimiter: str = ",", header: bool = True, escape: str = "", encoding: str = "utf-8") -> bytes:
    """Return a CSV."""
    file = io.StringIO()
    writer = csv.writer(file, delimiter=delimiter, escapechar=escape or None, doublequote=not escape)
    writer.writerows([list(rows[0])] * header)
    writer.writerows(row.values() for row in rows)
    return file.getvalue().encode(encoding)


def lines(rows: Rows) -> bytes:
    """Return JSON lines."""
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def without(rows: Rows, *names: str) -> Rows:
    """Return the rows without some columns."""
    return [{name: value for name, value in row.items() if name not in names} for row in rows]


def renamed(rows: Rows, **names: str) -> Rows:
    """Return the rows with other names of columns."""
    return [{names.get(name, name): value for name, value in row.items()} for row in rows]


class Preparer:
    """Prepare datasets in one folder, and say what is in them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0

    def write(self, **files: bytes) -> Path:
        """Write files into a folder of their own; `__` in a name stands for a dot. Return the folder."""
        self.count += 1
        path = self.folder / f"source {self.count}"
        path.mkdir()
        for name, content in files.items():
            (path / name.replace("__", ".")).write_bytes(content)
        return path

    def data(self, source: Any = None, out: Path | None = None, **choices: Any) -> Path:
        """Return a dataset of a source, by default of ROWS and in a new folder; a choice that is None is left out."""
        self.count += 1
        out = out or self.folder / f"data {self.count}"
        source = self.write(rows__csv=table(ROWS)) if source is None else source
        options = {"task": "text2text", "tokenizer": "sample:", "input_length": 64, "target_length": 8, "workers": 0}
        options |= COLUMNS | choices
        options = {name: value for name, value in options.items() if value is not None}
        t5prep.prepare(source=source if isinstance(source, list) else str(source), out=out, **options)
        return out

    def shards(self, source: Any = None, **choices: Any) -> dict[str, bytes]:
        """Return the bytes of all shards by their names."""
        data = self.data(source, **choices)
        return {name: content for name, content in small_corpora.bytes_of(data).items() if "tfrecord" in name}

    def texts(self, source: Any = None, **choices: Any) -> list[tuple[str, ...]]:
        """Return the id, the split, the input and the target of all records, sorted."""
        rows = t5prep.table(self.data(source, **choices)).read_all().to_pylist()
        return sorted((row["id"], row["split"], row["input"], row["target"]) for row in rows)


Relation = Callable[[Preparer], Iterator[Any]]
RELATIONS: dict[str, Relation] = {}
# What has no relation that one dataset could show.
EXEMPT = {
    "runner": "engines give the bytes of one machine: test_engines, test_dataflow",
    "beam_options": "is Beam's own, for engines",
    "price": "is for an estimate that is printed: test_estimates",
    "as_json": "is how the summary is printed: test_cli",
}


def relation(*names: str) -> Callable[[Relation], Relation]:
    """Register what must be equal: all that a function yields."""

    def add(function: Relation) -> Relation:
        RELATIONS.update(dict.fromkeys(names, function))
        return function

    return add


@relation("source")
def _two_sources_are_one_folder(prepare: Preparer) -> Iterator[Any]:
    folder = prepare.write(a__csv=table(ROWS[:7]), b__csv=table(ROWS[7:]))
    yield prepare.shards(folder)
    yield prepare.shards(str(folder / "*.csv"))
    yield prepare.shards([str(folder / "b.csv"), str(folder / "a.csv")])
    yield prepare.shards([str(prepare.write(c__jsonl=lines(ROWS))), str(prepare.write(d__csv=table(ROWS[:1])))])


@relation("tokenizer", "out")
def _a_tokenizer_elsewhere_is_the_same(prepare: Preparer) -> Iterator[Any]:
    for name in ("one", "two"):
        yield prepare.shards(
            tokenizer=str(small_corpora.byt5(prepare.folder / name)), input_length=256, target_length=32
        )


@relation("input_length", "target_length")
def _room_that_no_text_needs_changes_none(prepare: Preparer) -> Iterator[Any]:
    for input_length, target_length in ((64, 8), (128, 8), (64, 32)):
        yield prepare.texts(input_length=input_length, target_length=target_length)


@relation("layout")
def _layouts_hold_the_same_texts(prepare: Preparer) -> Iterator[Any]:
    assert prepare.texts(layout="padded") == prepare.texts(layout="ragged")
    for layout in ("padded", "ragged", "packed"):
        records = small_corpora.records(prepare.data(layout=layout, **TRAIN))["train"]
        yield [sorted(token for row in records for token in row[side] if token > 0) for side in ("input_ids", "labels")]


@relation("truncation", "long", "marker", "protect")
def _what_says_how_to_cut_changes_no_short_row(prepare: Preparer) -> Iterator[Any]:
    yield prepare.shards()
    for choices in ({"truncation": "tail"}, {"truncation": "head"}, {"long": "reject"}, {"marker": "none"}):
        yield prepare.shards(**choices)
    yield prepare.shards(protect=["text"])


@relation("masks")
def _masks_are_all_that_is_added(prepare: Preparer) -> Iterator[Any]:
    for masks in (False, True):
        records_by_split = small_corpora.records(prepare.data(masks=masks))
        yield {
            split: [{name: value for name, value in record.items() if "mask" not in name} for record in records]
            for split, records in records_by_split.items()
        }


@relation("keep_newlines")
def _texts_without_newlines_keep_none(prepare: Preparer) -> Iterator[Any]:
    yield prepare.shards()
    yield prepare.shards(keep_newlines=True)


@relation("splits")
def _shares_are_the_same_however_they_are_given(prepare: Preparer) -> Iterator[Any]:
    yield prepare.shards()
    yield prepare.shards(splits={"train": 0.9, "validation": 0.1})
    yield prepare.shards(splits="train=0.9,validation=0.1")


@relation("split_files")
def _names_of_splits_say_the_same_again(prepare: Preparer) -> Iterator[Any]:
    folder = prepare.write(train__csv=table(ROWS[:9]), dev__csv=table(ROWS[9:]))
    yield prepare.shards(folder)
    yield prepare.shards(folder, split_files=["train=train.csv", "validation=dev.csv"])
    yield prepare.shards(folder, split_files=["validation=d*,train=t*"])


@relation("split_column")
def _a_column_divides_as_files_do(prepare: Preparer) -> Iterator[Any]:
    parts = {name: [row for row in ROWS if row["part"] == name] for name in ("train", "test")}
    yield prepare.shards(prepare.write(train__csv=table(parts["train"]), test__csv=table(parts["test"])))
    yield prepare.shards(split_column="part")
    yield prepare.shards(prepare.write(rows__csv=table(renamed(ROWS, part="x"))), split_column="x")


@relation("skip_files")
def _a_file_that_is_skipped_may_be_removed(prepare: Preparer) -> Iterator[Any]:
    folder = prepare.write(a__csv=table(ROWS), b__csv=table(REPEATS))
    yield prepare.shards()
    yield prepare.shards(folder, skip_files=["b.csv"])
    (folder / "b.csv").unlink()
    yield prepare.shards(folder)


@relation("held_out")
def _rows_held_out_are_a_share(prepare: Preparer) -> Iterator[Any]:
    folder = prepare.write(train__csv=table(ROWS))
    yield prepare.shards(folder, held_out=0.25)
    yield prepare.shards(splits={"validation": 0.25, "train": 0.75})


@relation("group_column")
def _a_group_may_have_any_name(prepare: Preparer) -> Iterator[Any]:
    yield prepare.shards(group_column="page")
    yield prepare.shards(prepare.write(rows__csv=table(renamed(ROWS, page="x"))), group_column="x")


@relation("dedup")
def _without_its_repeats_a_table_loses_nothing_more(prepare: Preparer) -> Iterator[Any]:
    repeated = prepare.write(rows__csv=table(ROWS + REPEATS))
    for dedup in ("exact", "near"):
        kept_ids = {text[0] for text in prepare.texts(repeated, dedup=dedup)}
        assert len(kept_ids) == len(ROWS), dedup
        once = [row for row in ROWS + REPEATS if row["id"] in kept_ids]
        source = prepare.write(rows__csv=table(once))
        assert prepare.shards(repeated, dedup=dedup) == prepare.shards(source, dedup=dedup)
        assert prepare.texts(repeated, dedup=dedup) == prepare.texts(source)
        yield len(kept_ids)


@relation("dedup_against")
def _rows_of_another_dataset_may_be_removed(prepare: Preparer) -> Iterator[Any]:
    earlier = [str(prepare.data(prepare.write(rows__csv=table(rows)))) for rows in (ROWS[:4], ROWS[4:6])]
    yield prepare.shards(prepare.write(rows__csv=table(ROWS[6:])), dedup="exact")
    yield prepare.shards(dedup="exact", dedup_against=earlier)
    yield prepare.shards(dedup="exact", dedup_against=earlier[::-1])


@relation("near_words", "near_jaccard", "near_hashes")
def _texts_that_differ_are_near_by_no_measure(prepare: Preparer) -> Iterator[Any]:
    source = prepare.write(rows__csv=table(UNLIKE))
    yield prepare.shards(source)
    for choices in ({}, {"near_words": 2}, {"near_jaccard": 0.5}, {"near_hashes": 32}):
        yield prepare.shards(source, dedup="near", **choices)


@relation("filter")
def _a_filter_passes_what_it_passed(prepare: Preparer) -> Iterator[Any]:
    chosen = {"filter": ["words:least=15"]}
    passed = {text[0] for text in prepare.texts(**chosen)}
    assert 0 < len(passed) < len(ROWS)
    passed_source = prepare.write(rows__csv=table([row for row in ROWS if row["id"] in passed]))
    yield prepare.shards(**chosen)
    yield prepare.shards(passed_source, **chosen)
    yield prepare.shards(passed_source)


@relation("decontaminate")
def _a_row_of_an_evaluation_set_may_be_removed(prepare: Preparer) -> Iterator[Any]:
    evaluation = [{"text": row["text"]} for row in UNLIKE[:3]]
    sets = [str(prepare.write(a__csv=table(evaluation))), str(prepare.write(a__jsonl=lines(evaluation[::-1])))]
    source, words = prepare.write(rows__csv=table(UNLIKE)), {"decontaminate_words": 6}
    yield prepare.shards(prepare.write(rows__csv=table(UNLIKE[3:])))
    for selected_sets in (sets[:1], sets[1:], sets, sets[::-1]):
        yield prepare.shards(source, decontaminate=selected_sets, **words)


@relation("decontaminate_words")
def _no_run_of_any_length_is_in_other_texts(prepare: Preparer) -> Iterator[Any]:
    unrelated_text = "something else that stands nowhere in these rows at all, not in any of them"
    evaluation = prepare.write(a__csv=table([{"text": unrelated_text}]))
    yield prepare.shards()
    for words in (3, 5, 13):
        yield prepare.shards(decontaminate=[str(evaluation)], decontaminate_words=words)


@relation("shards")
def _shards_are_cuts_of_the_same_records(prepare: Preparer) -> Iterator[Any]:
    for shards in (None, 1, 3):
        records_by_split = small_corpora.records(prepare.data(shards=shards, **TRAIN))
        yield sorted(json.dumps(record, default=str, sort_keys=True) for record in records_by_split["train"])


@relation("seed")
def _a_seed_moves_rows_and_changes_none(prepare: Preparer) -> Iterator[Any]:
    for seed in (0, 1, -7):
        yield prepare.texts(seed=seed, **TRAIN)


@relation("limit")
def _a_limit_that_is_not_reached_is_none(prepare: Preparer) -> Iterator[Any]:
    yield prepare.shards()
    yield prepare.shards(limit=len(ROWS))
    yield prepare.shards(prepare.write(rows__csv=table(ROWS + REPEATS)), limit=len(ROWS))


@relation("format")
def _a_format_may_stand_in_the_name(prepare: Preparer) -> Iterator[Any]:
    yield prepare.shards()
    for kind, content in (("csv", table(ROWS)), ("jsonl", lines(ROWS)), ("tsv", table(ROWS, delimiter="\t"))):
        yield prepare.shards(prepare.write(rows=content), format=kind)


@relation("encoding")
def _an_encoding_changes_no_text(prepare: Preparer) -> Iterator[Any]:
    yield prepare.shards()
    yield prepare.shards(encoding="utf-8")
    for encoding in ("latin-1", "utf-16", "utf-16-le"):
        yield prepare.shards(prepare.write(rows__csv=table(ROWS, encoding=encoding)), encoding=encoding)


@relation("delimiter")
def _a_delimiter_changes_no_text(prepare: Preparer) -> Iterator[Any]:
    yield prepare.shards()
    yield prepare.shards(delimiter=",")
    for delimiter in ";|\t":
        yield prepare.shards(prepare.write(rows__csv=table(ROWS, delimiter=delimiter)), delimiter=delimiter)
    yield prepare.shards(prepare.write(rows__csv=table(ROWS, delimiter=";")))


@relation("escape")
def _an_escape_changes_no_text(prepare: Preparer) -> Iterator[Any]:
    quoted = [{**row, "text": f'say "{row["text"]}"'} for row in ROWS]
    yield prepare.shards(prepare.write(rows__csv=table(quoted)))
    yield prepare.shards(prepare.write(rows__csv=table(quoted, escape="\\")), escape="\\")
    yield prepare.shards(prepare.write(rows__csv=table(quoted)), escape="\\")


@relation("columns")
def _names_may_stand_in_the_first_line(prepare: Preparer) -> Iterator[Any]:
    yield prepare.shards()
    names = ",".join(ROWS[0])
    yield prepare.shards(prepare.write(rows__csv=table(ROWS, header=False)), columns=names)
    parts = prepare.write(a__csv=table(ROWS[:1], header=False), b__csv=table(ROWS[1:], header=False))
    yield prepare.shards(parts, columns=names)
    packed = prepare.write(rows__tsv=table(ROWS, header=False, delimiter="\t"))
    yield prepare.shards(packed, columns=names.replace(",", " , "))
    source = prepare.write(rows__csv=table(ROWS, header=False, delimiter="|", encoding="utf-16"))
    yield prepare.shards(source, columns=names, delimiter="|", encoding="utf-16")


@relation("records")
def _rows_of_a_document_are_lines(prepare: Preparer) -> Iterator[Any]:
    yield prepare.shards(prepare.write(rows__jsonl=lines(ROWS)))
    yield prepare.shards(prepare.write(rows__json=json.dumps(ROWS).encode()))
    for path, document in (("data[]", {"data": ROWS}), ("a.b[]", {"a": {"b": ROWS}}), ("[]", ROWS)):
        yield prepare.shards(prepare.write(rows__json=json.dumps(document).encode()), records=path)


@relation("workers", "memory")
def _processes_and_memory_change_no_byte(prepare: Preparer) -> Iterator[Any]:
    yield prepare.shards()
    yield prepare.shards(workers=2)
    yield prepare.shards(memory="2GiB")


@relation("fresh", "overwrite")
def _a_dataset_in_the_way_changes_no_byte(prepare: Preparer) -> Iterator[Any]:
    source = prepare.write(rows__csv=table(ROWS))
    yield prepare.shards(source)
    yield prepare.shards(source, fresh=True)
    existing_data = prepare.data(source, seed=5)
    yield prepare.shards(source, out=existing_data, overwrite=True)


@relation("dry_run")
def _a_dry_run_writes_nothing(prepare: Preparer) -> Iterator[Any]:
    source, out = prepare.write(rows__csv=table(ROWS)), prepare.folder / "dry"
    options = [f"--{name.replace('_', '-')}={value}" for name, value in COLUMNS.items()]
    command = ["prepare", "text2text", "--source", str(source), "--tokenizer", "sample:", "--out", str(out), *options]
    with contextlib.suppress(SystemExit):
        main(args=[*command, "--dry-run"], standalone_mode=False)
    assert not out.exists()
    yield prepare.shards(source)
    yield prepare.shards(source)


@relation("target", "label_map")
def _a_map_may_be_applied_before(prepare: Preparer) -> Iterator[Any]:
    words = {"low": "bad", "high": "good"}
    mapped = prepare.write(rows__csv=table([{**row, "kind": words[row["kind"]]} for row in ROWS]))
    yield prepare.shards(mapped, targets_column="kind")
    yield prepare.shards(mapped, targets_column="kind", target="text")
    yield prepare.shards(targets_column="kind", label_map="low=bad,high=good")
    yield prepare.shards(targets_column="kind", label_map="high=good,low=bad")


@relation("inputs_column", "targets_column", "id_column")
def _columns_may_have_any_name_and_place(prepare: Preparer) -> Iterator[Any]:
    yield prepare.shards()
    names = {"text": "a b", "answer": "ü", "id": "Key"}
    choices = {"inputs_column": "a b", "targets_column": "ü", "id_column": "Key"}
    yield prepare.shards(prepare.write(rows__csv=table(renamed(ROWS, **names))), **choices)
    backwards = [dict(reversed(row.items())) for row in without(ROWS, "page", "other")]
    yield prepare.shards(prepare.write(rows__jsonl=lines(backwards)))
    inside = [{"in": {"text": row["text"], "id": row["id"]}, "answer": row["answer"]} for row in ROWS]
    parquet = prepare.write() / "rows.parquet"
    pyarrow.parquet.write_table(pa.Table.from_pylist(inside), parquet)
    yield prepare.shards(parquet, inputs_column="in.text", id_column="in.id")


@relation("inputs", "targets")
def _a_template_of_one_column_is_that_column(prepare: Preparer) -> Iterator[Any]:
    yield prepare.shards()
    yield prepare.shards(inputs_column=None, inputs="{text}")
    yield prepare.shards(targets_column=None, targets="{answer}")
    joined = [{**row, "text": f"{row['other']}: {row['text']}"} for row in ROWS]
    first = prepare.shards(prepare.write(rows__csv=table(joined)))
    assert first == prepare.shards(inputs_column=None, inputs="{other}: {text}")


@relation("empty_target")
def _an_empty_target_may_be_filled_before(prepare: Preparer) -> Iterator[Any]:
    filled = [{**row, "answer": "none" if n % 4 == 0 else row["answer"]} for n, row in enumerate(ROWS)]
    blank = [{**row, "answer": "" if n % 4 == 0 else row["answer"]} for n, row in enumerate(ROWS)]
    null = [{**row, "answer": row["answer"] or None} for row in blank]
    yield prepare.shards(prepare.write(rows__csv=table(filled)))
    for source in (prepare.write(rows__csv=table(blank)), prepare.write(rows__jsonl=lines(null))):
        yield prepare.shards(source, empty_target="none")
    yield prepare.shards(prepare.write(rows__csv=table(filled)), empty_target="other")


@relation("line_pairs")
def _two_files_are_a_table_of_two_columns(prepare: Preparer) -> Iterator[Any]:
    options = {"inputs_column": "source", "targets_column": "target", "id_column": None}
    sides = ["".join(f"{row[name]}\n" for row in ROWS).encode() for name in ("text", "answer")]
    columns = [{"source": row["text"], "target": row["answer"]} for row in ROWS]
    texts = [prepare.texts(prepare.write(rows__en=sides[0], rows__de=sides[1]), line_pairs=".en,.de", **options)]
    texts.append(prepare.texts(prepare.write(rows__tsv=table(columns, delimiter="\t")), **options))
    yield from (sorted(pair[2:] for pair in text_rows) for text_rows in texts)


def encoded(prepare: Preparer) -> dict[str, Any]:
    """Return the choices of an encoder's dataset."""
    folder = prepare.folder / "encoder"
    tokenizer = str(folder if folder.exists() else encoders.bert(folder))
    return {"tokenizer": tokenizer, "target_length": None, "targets_column": None}


@relation("second_column")
def _the_second_text_may_stand_anywhere(prepare: Preparer) -> Iterator[Any]:
    options = {**encoded(prepare), "targets_column": "kind", "label_map": "low=low,high=high"}
    yield prepare.shards(second_column="other", **options)
    yield prepare.shards(prepare.write(rows__csv=table(renamed(ROWS, other="x"))), second_column="x", **options)


@relation("tags_column")
def _tags_are_a_list_or_a_text(prepare: Preparer) -> Iterator[Any]:
    options = {**encoded(prepare), "label_map": "A=A,B=B"}
    lists = [{"id": row["id"], "text": ["one", "two", "three"], "tags": ["A", "B", "A"]} for row in ROWS]
    texts = [{name: value if name == "id" else " ".join(value) for name, value in row.items()} for row in lists]
    yield prepare.shards(prepare.write(rows__jsonl=lines(lists)), tags_column="tags", **options)
    yield prepare.shards(prepare.write(rows__csv=table(texts)), tags_column="tags", **options)
    yield prepare.shards(prepare.write(rows__csv=table(renamed(texts, tags="x"))), tags_column="x", **options)


@relation("labels_column", "label_separator")
def _labels_are_a_list_a_text_or_columns(prepare: Preparer) -> Iterator[Any]:
    options = {**encoded(prepare), "label_map": "a=a,b=b"}
    sets = [["a"], ["a", "b"], []]
    base = [{"id": row["id"], "text": row["text"], "labels": sets[n % 3]} for n, row in enumerate(ROWS)]
    yield prepare.shards(prepare.write(rows__jsonl=lines(base)), labels_column="labels", **options)
    for separator in (",", "|", ";"):
        texts = [{**row, "labels": separator.join(row["labels"])} for row in base]
        source = prepare.write(rows__csv=table(texts))
        yield prepare.shards(source, labels_column="labels", label_separator=separator, delimiter=",", **options)
    flags = [{**row, **{name: int(name in row["labels"]) for name in "ab"}} for row in base]
    source = prepare.write(rows__csv=table(without(flags, "labels")))
    yield prepare.shards(source, labels_column="a,b", **{**options, "label_map": None})


@relation("number_column")
def _a_number_is_a_text_or_a_number(prepare: Preparer) -> Iterator[Any]:
    options = encoded(prepare)
    rows = [{"id": row["id"], "text": row["text"], "number": n / 4} for n, row in enumerate(ROWS)]
    yield prepare.shards(prepare.write(rows__jsonl=lines(rows)), number_column="number", **options)
    for source in (rows, [{**row, "number": f" {row['number']:.5f}"} for row in rows]):
        yield prepare.shards(prepare.write(rows__csv=table(source)), number_column="number", **options)


def _option_names() -> set[str]:
    """Return the names of all options of `prepare text2text`, which has those of every task."""
    group = main.get_command(click.Context(main), "prepare")
    assert isinstance(group, click.Group)
    command = group.get_command(click.Context(group), "text2text")
    assert command is not None
    return {str(parameter.name) for parameter in command.params}


def test_every_option_has_a_relation() -> None:
    """Add a relation for a new option, or the reason to EXEMPT why there is none."""
    assert _option_names() == RELATIONS.keys() | EXEMPT.keys()
    assert not RELATIONS.keys() & EXEMPT.keys()


@pytest.mark.parametrize("function", dict.fromkeys(RELATIONS.values()), ids=lambda function: function.__name__[1:])
def test_what_must_not_change_does_not(function: Relation, tmp_path: Path) -> None:
    first, *later_outcomes = function(Preparer(tmp_path))
    assert first
    assert later_outcomes
    for outcome in later_outcomes:
        assert outcome == first
