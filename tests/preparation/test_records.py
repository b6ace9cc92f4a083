"""Rows become framed records, in every layout: the bytes, and what is counted."""

import io
import itertools
import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from raised import raises
from records_in_python import FEATURES, framed, pack
from small_corpora import prepared, write_csv
from spills import Row, columns_of, rows_of
from unpacked_records import restore, unpack

from t5prep._native import frame_records
from t5prep.dataset import tfrecord
from t5prep.dataset.settings import Settings
from t5prep.errors import UsageError
from t5prep.preparation import memory_budget, record_counts, records, shards, task_settings
from t5prep.preparation.block_tokenizer import BlockTokenizer
from t5prep.preparation.records import PackedRows, PlainRows, RecordFormat
from t5prep.preparation.sort_blocks import BlockSorter, BlockTotals
from t5prep.reading import blocks, formats
from t5prep.sources import RawFile
from t5prep.tasks import registry
from t5prep.tokens import loading, noise_spans

COLUMNS = {"inputs_column": "text", "targets_column": "answer", "id_column": "id"}


@st.composite
def rows(draw):
    side = st.lists(st.integers(1, 40_000), min_size=1, max_size=12)
    row_strategy = st.builds(Row, st.just(0), st.text(min_size=1, max_size=150), side, side)
    return draw(st.lists(row_strategy, max_size=12))


ODD = [
    Row(0, "", [1], [1]),
    Row(0, "x" * 70_000, [127, 128, 16_383, 16_384, (1 << 21) - 1], [40_000] * 12),
    Row(0, "e", [], []),
    Row(0, "half a pair: \ud83d", [1 << 21, 3, (1 << 31) - 1], [3, 4]),
]


def features_of(row, record_format, answers):
    """What a record of one row holds, by the definition of its features."""
    sides = [list(row.inputs), list(row.labels)]
    missing = [max(0, length - len(side)) for side, length in zip(sides, record_format.lengths, strict=True)]
    features = {"id": [row.id.encode("utf-8", "surrogatepass")]}
    for side, name, mask in ((0, "input_ids", "attention_mask"), (1, "labels", "decoder_attention_mask")):
        features[name] = sides[side] + [record_format.pads[side]] * missing[side]
        if record_format.masks[side]:
            features[mask] = [1] * len(sides[side]) + [0] * missing[side]
    if record_format.separator >= 0:
        first = sides[0].index(record_format.separator) + 1 if record_format.separator in sides[0] else len(sides[0])
        features["token_type_ids"] = [0] * first + [1] * (len(sides[0]) - first) + [0] * missing[0]
    if answers:
        features["references"] = answers
    return features


@pytest.mark.parametrize(
    "record_format",
    [
        RecordFormat(),
        RecordFormat((16, 12), (3, -100)),
        RecordFormat((16, 12), (3, -100), (True, True)),
        RecordFormat((16, 12), (300, -100), (True, False), separator=3),
    ],
)
@given(sample_rows=rows(), answers=st.lists(st.lists(st.binary(max_size=200), max_size=3), max_size=3))
def test_records_hold_the_features_of_their_rows(record_format, sample_rows, answers):
    """Byte for byte as the writer in Python does, whose bytes are TensorFlow's own (test_tfrecord)."""
    sample_rows = sample_rows + ODD
    answers = [*answers, *[[]] * len(sample_rows)][: len(sample_rows)]
    columns = columns_of(sample_rows, references=answers, width=4)
    serialized_records = record_format(columns)
    assert serialized_records.to_list() == [
        framed(features_of(row, record_format, row_answers))
        for row, row_answers in zip(sample_rows, answers, strict=True)
    ]
    assert serialized_records.sizes.tolist() == record_format.sizes(columns).tolist()
    assert b"".join(serialized_records.to_list()) == serialized_records.data


@given(sample_rows=rows())
def test_two_bytes_a_token_make_the_same_records(sample_rows):
    record_format = RecordFormat((16, 12), (3, -100))
    assert record_format(columns_of(sample_rows, width=2)).data == record_format(columns_of(sample_rows, width=4)).data


@given(sample_rows=rows())
def test_packed_records_hold_the_rows_packed(sample_rows):
    record_format = RecordFormat((16, 12), (3, -100), packed=True)
    (built,) = PackedRows(record_format, marked=False)([rows_of(sample_rows)]) if sample_rows else [None]
    if built is None:
        return
    pairs = [(np.array(row.inputs, np.int32), np.array(row.labels, np.int32)) for row in sample_rows]
    packed = pack(pairs, room=(16, 12), pad_id=3, label_pad=-100)
    names = [[] for _ in packed["input_ids"]]
    for row, index in zip(sample_rows, packed["example_rows"], strict=True):
        names[index].append(row.id.encode("utf-8", "surrogatepass"))
    expected_records = [
        framed({"id": record_ids, **{name: packed[name][index].tolist() for name in FEATURES}})
        for index, record_ids in enumerate(names)
    ]
    assert built.records.to_list() == expected_records
    assert built.counts.records == len(expected_records)


def good():
    side, starts = np.arange(1, 5, dtype=np.int32).tobytes(), np.array([0, 4]).tobytes()
    texts = np.array([0, 2]).tobytes()
    return [b"id", texts, side, starts, side, starts, b"", np.array([0, 0]).tobytes()]


SHAPE = 4, (0, 0), (0, -100), (False, False), -1, False
ONE_RECORD_STARTS = np.array([0, 1]).tobytes()


@pytest.mark.parametrize("column_index", [1, 3, 5, 7])
@pytest.mark.parametrize("starts", [[0, 5], [-1, 2], [2, 0], [0, 1, 2], [0, 1 << 62], [], [0]])
def test_starts_that_lie_are_refused(column_index, starts):
    columns = good()
    frame_records(tuple(columns), ONE_RECORD_STARTS, *SHAPE)
    columns[column_index] = np.array(starts, np.int64).tobytes()
    with pytest.raises(ValueError, match="offsets"):
        frame_records(tuple(columns), ONE_RECORD_STARTS, *SHAPE)


@pytest.mark.parametrize("starts", [[0, 2], [-1, 0], [1, 0], [0, 0], [1 << 62, (1 << 62) + 1]])
@pytest.mark.parametrize("packed", [False, True])
def test_records_of_rows_that_are_not_there_are_refused(starts, packed):
    shape = 4, (8, 8), (0, -100), (False, False), -1, packed
    frame_records(tuple(good()), ONE_RECORD_STARTS, *shape)
    if packed and starts == [0, 0]:
        return  # an empty record
    with pytest.raises(ValueError, match="offsets"):
        frame_records(tuple(good()), np.array(starts).tobytes(), *shape)


@pytest.mark.parametrize(
    "shape",
    [
        (4, (3, 8), (0, -100), (False, False), -1, False),  # longer than a record
        (4, (0, 0), (0, -100), (True, False), -1, False),  # a mask of no length
        (4, (-1, 8), (0, -100), (False, False), -1, False),
        (4, (1 << 40, 8), (0, -100), (False, False), -1, False),
        (3, (8, 8), (0, -100), (False, False), -1, False),
        (4, (0, 8), (0, -100), (False, False), -1, True),
    ],
)
def test_shapes_that_cannot_be_are_refused(shape):
    with pytest.raises(ValueError, match="offsets"):
        frame_records(tuple(good()), ONE_RECORD_STARTS, *shape)


def test_only_bytes_that_nobody_changes_are_taken():
    columns = good()
    columns[3] = np.array([0, 4])
    with pytest.raises(TypeError):
        frame_records(tuple(columns), ONE_RECORD_STARTS, *SHAPE)


@pytest.mark.parametrize("references", [b"\x01", b"\x02\0\0\0a", b"\xff\xff\xff\xff", b"\x01\0\0\0ab"])
def test_references_whose_sizes_lie_are_refused(references):
    columns = [*good()[:6], references, np.array([0, len(references)]).tobytes()]
    with pytest.raises(ValueError, match="offsets"):
        frame_records(tuple(columns), ONE_RECORD_STARTS, *SHAPE)


@pytest.fixture(scope="module")
def tokenizer():
    return loading.load("sample:")


def settings(name, *, options=None, **choices):
    task = registry.get(name).task
    lengths = {"input_length": task.input_length, "target_length": task.target_length}
    return Settings(task=name, options=options or {}, **{**lengths, "splits": {"train": 1.0}, **choices})


def written_shards(path, out, choices, tokenizer, *, block_bytes=1 << 20, count=2, backwards=False):
    """The parsed records of each shard, and what was written."""
    out.mkdir(exist_ok=True)
    file = RawFile(path.name, str(path), path.stat().st_size)
    task = registry.get(choices.task).choose(choices.options)
    tokenize = BlockTokenizer(choices, task, tokenizer)
    sort = BlockSorter(choices, task.task, tokenizer, files=[path.name], own_splits={})
    scanned_blocks = list(blocks.scan(file, formats.detect(path.name), block_bytes=block_bytes))
    sorted_blocks = [
        sort(tokenize(block).table, block) for block in (reversed(scanned_blocks) if backwards else scanned_blocks)
    ]
    layout = records.layout_of(choices, task, tokenizer)
    record_format = records.format_of_rows(choices, task.task, pad_id=tokenizer.pad_id, separator=tokenizer.eos_id)
    totals, spills = BlockTotals(), [block.spill for block in sorted_blocks]
    for block in sorted_blocks:
        totals.merge(block.totals)
    specs = shards.plan_shards(totals.records, totals.record_bytes, shards=count, drawn_by_id=True)
    written = [
        shards.write(spec, spills, files=[path.name], out=out, layout=layout, record_format=record_format)
        for spec in specs
    ]
    read = []
    for item in written:
        with open(out / item.shard.name, "rb") as opened:
            read.append([tfrecord.parse(record) for record in tfrecord.read(opened)])
    return read, written


def questions(path, count=300):
    words = ["rain", "cloud", "error", "module", "river", "loop"]
    with open(path, "w", encoding="utf-8") as file:
        for i in range(count):
            text = " ".join(words[(i * k + k) % 6] for k in range(1, 3 + i % 40))
            file.write(json.dumps({"id": f"q{i}", "text": text, "answer": words[i % 6]}) + "\n")
    return path


def test_packed_rows_of_one_range():
    sample_rows = [Row(0, "r0", [5, 6, 1], [9, 1]), Row(0, "r1", [7, 7, 7, 1], [8, 1]), Row(0, "r2", [4, 3, 1], [2, 1])]
    (built,) = PackedRows(RecordFormat((6, 4), packed=True), marked=False)([rows_of(sample_rows)])
    parsed = [tfrecord.parse(record) for record in tfrecord.read(io.BytesIO(built.records.data))]
    assert [row["id"] for row in parsed] == [[b"r0", b"r2"], [b"r1"]]
    assert [row["input_ids"] for row in parsed] == [[5, 6, 1, 4, 3, 1], [7, 7, 7, 1, 0, 0]]
    assert [row["input_segment_ids"] for row in parsed] == [[1, 1, 1, 2, 2, 2], [1, 1, 1, 1, 0, 0]]
    assert [row["labels"] for row in parsed] == [[9, 1, 2, 1], [8, 1, -100, -100]]
    assert (built.counts.records, built.counts.examples, built.counts.inputs) == (2, 3, 10)


@pytest.mark.parametrize("layout", [PlainRows, PackedRows])
def test_the_parts_in_which_records_are_framed_change_nothing(layout, monkeypatch):
    sample_rows = [Row(0, f"r{i}", [5 + i % 9] * (1 + i % 7), [9 + i % 2, 1]) for i in range(50)]
    arrange = layout(RecordFormat((16, 12), packed=layout is PackedRows), marked=False)
    (single_part,) = arrange([rows_of(sample_rows)])
    monkeypatch.setattr(records, "RECORDS_A_PART", 3)
    parts = list(arrange([rows_of(sample_rows)]))
    assert len(parts) > 3
    assert b"".join(part.records.data for part in parts) == single_part.records.data
    assert sum((part.counts for part in parts), record_counts.Counts()) == single_part.counts


def test_the_labels_of_each_range_are_counted():
    ranges = [
        rows_of([Row(0, "a", [5, 1], [9, 1])]),
        rows_of([Row(0, "b", [7, 1], [8, 1]), Row(0, "c", [3, 1], [8, 1])]),
    ]
    built = list(PlainRows(RecordFormat(), marked=False)(ranges))
    assert [part.counts.records for part in built] == [1, 2]
    assert built[1].counts.labels == {(8, 1): (0, 2)}


def tokens(record, name, pad):
    return [token for token in record[name] if token != pad]


def test_packed_rows_hold_the_same_examples_as_padded_ones(tmp_path, tokenizer):
    path = questions(tmp_path / "rows.jsonl")
    lengths = {"input_length": 96, "target_length": 24}
    plain, _ = written_shards(path, tmp_path / "plain", settings("text2text", options=COLUMNS, **lengths), tokenizer)
    choices = settings("text2text", options=COLUMNS, layout="packed", **lengths)
    packed, written = written_shards(path, tmp_path / "packed", choices, tokenizer)
    for plain_shard, packed_shard, item in zip(plain, packed, written, strict=True):
        expected = {
            record["id"][0]: (tokens(record, "input_ids", 0), tokens(record, "labels", -100)) for record in plain_shard
        }
        examples = {}
        for record in packed_shard:
            (row,) = unpack({name: np.array(record[name]) for name in FEATURES})
            assert len(row) == len(record["id"])
            assert len(record["input_ids"]) == len(record["input_positions"]) == 96
            assert len(record["labels"]) == len(record["label_positions"]) == 24
            for id, (inputs, labels) in zip(record["id"], row, strict=True):
                examples[id] = inputs.tolist(), labels.tolist()
        assert examples == expected
        assert len(packed_shard) < len(plain_shard)
        counts = item.totals.splits["train"].counts
        assert (counts.records, counts.examples) == (len(packed_shard), len(plain_shard))
        assert counts.inputs == sum(len(inputs) for inputs, _ in expected.values())
        assert sum(counts.joint.values()) == len(packed_shard)


@pytest.mark.parametrize("name", ["text2text", "span_corruption", "ul2"])
def test_the_same_bytes_whatever_the_blocks(name, tmp_path, tokenizer):
    path = questions(tmp_path / "rows.jsonl")
    choices = (
        settings(name, options=COLUMNS, layout="packed", input_length=96, target_length=24)
        if name == "text2text"
        else settings(name, input_length=64)
    )
    _, first_shards = written_shards(path, tmp_path / "one", choices, tokenizer)
    _, second_shards = written_shards(path, tmp_path / "other", choices, tokenizer, block_bytes=4096, backwards=True)
    assert [item.shard for item in first_shards] == [item.shard for item in second_shards]
    reseeded = settings(name, options=choices.options, layout=choices.layout, input_length=64, seed=1)
    _, third = written_shards(path, tmp_path / "third", reseeded, tokenizer)
    assert [item.shard.sha256 for item in first_shards] != [item.shard.sha256 for item in third]


def rebuilt(records, tokenizer):
    """The documents of a shard, from its rows in order: hidden spans put back, rows joined, cut at each EOS."""
    sentinel = tokenizer.sentinel(0)
    rows = [
        restore(np.array(record["input_ids"]), np.array(record["labels"]), first_sentinel=sentinel)
        for record in records
    ]
    flat = np.concatenate(rows).tolist()
    documents = [list(part) for end, part in itertools.groupby(flat, key=lambda token: token == 1) if not end]
    assert flat[-1] == 1
    return documents


def check_documents(path, out, tokenizer, *, texts, **choices):
    chosen = settings("span_corruption", **choices)
    raw, targets = noise_spans.lengths(chosen.input_length)
    read, written = written_shards(path, out, chosen, tokenizer)
    document_counts = Counter(tuple(document) for shard in read for document in rebuilt(shard, tokenizer))
    assert document_counts == Counter(tuple(tokenizer.encode(text)) for text in texts)
    names = [record["id"][0] for shard in read for record in shard]
    assert len(set(names)) == len(names)
    for shard, item in zip(read, written, strict=True):
        full = [tokens(record, "input_ids", 0) for record in shard]
        assert all(len(row) == chosen.input_length for row in full[:-1]), "only the last row of a shard may be shorter"
        assert all(len(tokens(record, "labels", -100)) == targets for record in shard[:-1])
        assert item.shard.records == len(shard)
        assert (raw - 1) * len(shard) < sum(len(d) + 1 for d in rebuilt(shard, tokenizer)) + raw
    assert sum(split.counts.examples for item in written for split in item.totals.splits.values()) == len(texts)


@pytest.mark.parametrize("input_length", [16, 64, 512])
def test_every_document_comes_back(input_length, tmp_path, tokenizer):
    path = questions(tmp_path / "rows.jsonl")
    texts = [json.loads(line)["text"] for line in path.read_text(encoding="utf-8").splitlines()]
    check_documents(path, tmp_path / "out", tokenizer, texts=texts, input_length=input_length)


@pytest.mark.extra("seeds")
def test_every_document_of_wikitext_comes_back(tmp_path, shared_data):
    text = (shared_data / "english" / "wikitext2_valid.txt").read_text(encoding="utf-8")
    path = tmp_path / "wiki.txt"
    path.write_text(text, encoding="utf-8")
    texts = [line for line in text.split("\n") if line.strip()]
    t5 = loading.load(str(shared_data / "t5_tokenizer" / "spiece.model"))
    check_documents(path, tmp_path / "out", t5, texts=texts)


@pytest.mark.parametrize(
    ("choices", "says"),
    [
        ({"input_length": 1024}, ("option.out-of-range", "229")),
        ({"layout": "packed"}, ("option.inapplicable", "--layout packed")),
        ({"layout": "ragged"}, ("option.inapplicable", "--layout ragged")),
        ({"truncation": "head"}, ("option.inapplicable", "--truncation head")),
        ({"long": "reject"}, ("option.inapplicable", "--long reject")),
        ({"marker": "none"}, ("option.inapplicable", "--marker none")),
        ({"input_length": 4096}, ("option.excess-spans", "100")),
        ({"options": {"density": 2.0}}, ("option.out-of-range",)),
    ],
)
def test_documents_that_cannot_be_arranged(choices, says):
    wrong = settings("span_corruption", **choices)
    with raises(UsageError, *says):
        task_settings.check(wrong, registry.get("span_corruption").choose(wrong.options))


def test_labels_of_masked_tokens_are_as_many_as_inputs():
    """--target-length 40 wrote 40 labels for inputs of 16 tokens, which no encoder can learn."""
    chosen = registry.get("masked_language").choose({})
    task_settings.check(settings("masked_language", input_length=16, target_length=16), chosen)
    with raises(UsageError, "option.inapplicable", "--target-length 40", "16"):
        task_settings.check(settings("masked_language", input_length=16, target_length=40), chosen)


@pytest.mark.parametrize(("input_length", "target_length"), [(64, 14), (512, 114), (1024, 229)])
def test_the_command_line_gives_targets_the_length_that_inputs_need(tmp_path, input_length, target_length):
    from click.testing import CliRunner

    from t5prep.cli import prepare_command
    from t5prep.dataset import manifest

    source = questions(tmp_path / "rows.jsonl")
    choices = ["--source", str(source), "--tokenizer", "sample:", "--input-length", str(input_length), "--workers", "1"]
    result = CliRunner().invoke(
        prepare_command.prepare_command, ["span_corruption", *choices, "--out", str(tmp_path / "out")]
    )
    assert result.exit_code == 0, result.output
    chosen = manifest.load(tmp_path / "out").settings
    assert (chosen.input_length, chosen.target_length) == (input_length, target_length)


def test_packing_says_which_side_is_too_short(tmp_path):
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps({"sentence": f"film {i}", "label": i % 2}) + "\n" for i in range(400)))
    choices = {"task": "sst2", "tokenizer": "sample:", "layout": "packed"}
    dataset_manifest = prepared(source, tmp_path / "short", target_length=4, **choices)
    (warning,) = dataset_manifest.warnings
    advice = re.search(r"full of targets while 9\d% of their inputs is padding.*--target-length (\d+)", warning)
    assert advice
    advised_manifest = prepared(source, tmp_path / "again", target_length=int(advice[1]), **choices)
    assert advised_manifest.warnings == []
    short_lengths, advised_lengths = (m.splits["train"].lengths["packed"] for m in (dataset_manifest, advised_manifest))
    assert short_lengths["examples"] == advised_lengths["examples"]
    assert advised_lengths["padding_after"] < 0.15 < 0.8 < short_lengths["padding_after"]


def test_a_packed_classification_is_advised_shorter_targets_not_inputs_of_thousands(tmp_path):
    source = tmp_path / "rows.jsonl"
    text = "the film has a long and winding plot " * 3
    source.write_text("".join(json.dumps({"sentence": f"{text}{i}", "label": i % 2}) + "\n" for i in range(200)))
    choices = {"task": "sst2", "tokenizer": "sample:", "layout": "packed", "input_length": 256}
    dataset_manifest = prepared(source, tmp_path / "long", target_length=128, **choices)
    (warning,) = dataset_manifest.warnings
    advice = re.search(r"full of inputs while 9\d% of their targets is padding.*--target-length (\d+),", warning)
    assert advice
    assert int(advice[1]) < 16
    advised_manifest = prepared(source, tmp_path / "again", target_length=int(advice[1]), **choices)
    assert advised_manifest.warnings == []
    assert advised_manifest.splits["train"].records == dataset_manifest.splits["train"].records
    assert advised_manifest.ledger["targets"]["rows_cut"] == 0


def test_a_text_that_does_not_fit_whole_is_rejected_where_both_sides_must_agree(tmp_path):
    source = tmp_path / "rows.jsonl"
    texts = ["Soarele răsare.", "Soarele răsare în țară. " * 60]
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    dataset_manifest = prepared(
        source, tmp_path / "out", task="diacritics_ro", tokenizer="sample:", long="reject", splits={"train": 1.0}
    )
    assert (dataset_manifest.splits["train"].records, dataset_manifest.rejected) == (1, {"too long": 1})


@pytest.mark.parametrize("layout", ["padded", "ragged", "packed"])
def test_the_rows_that_lost_most_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str) -> None:
    """The same ones, whatever the parts in which a shard is read."""
    rows = [{"id": f"r{n}", "q": "word " * (20 + (n * 7) % 60), "a": "yes no " * (1 + n % 9)} for n in range(150)]
    columns = {"inputs_column": "q", "targets_column": "a", "id_column": "id"}
    ledgers = []
    share = memory_budget.share
    for parts in (1 << 20, 2000):
        monkeypatch.setattr(
            memory_budget, "share",
            lambda *arguments, parts=parts, **options: share(*arguments, **options)._replace(block_bytes=parts, range_bytes=parts),
        )  # fmt: skip
        dataset_manifest = prepared(
            write_csv(tmp_path / "rows.csv", rows), tmp_path / f"{parts}", tokenizer="sample:", task="text2text",
            options=columns, input_length=40, target_length=8, layout=layout,
        )  # fmt: skip
        ledgers.append(dataset_manifest.ledger)
    assert ledgers[0] == ledgers[1]
    for side in ("inputs", "targets"):
        side_ledger = ledgers[0][side]
        worst = side_ledger["worst"]
        assert len(worst) == 10 == record_counts.WORST
        assert [worst_row["lost"] for worst_row in worst] == sorted(
            (worst_row["lost"] for worst_row in worst), reverse=True
        )
        longest = {row["id"]: len(row["q" if side == "inputs" else "a"]) for row in rows}
        assert longest[worst[0]["id"]] == max(longest.values())
        assert sum(worst_row["lost"] for worst_row in worst) <= side_ledger["tokens_lost"]
