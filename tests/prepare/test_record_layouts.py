"""Packed rows and corrupted documents, from a file of rows to shards, without Beam."""

import io
import itertools
import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from inverses import restore, unpack
from preparing import prepared, write_csv

from t5prep.dataset import tfrecord
from t5prep.dataset.settings import Settings
from t5prep.errors import UsageError
from t5prep.prepare import (
    block_sorter,
    memory_budget,
    record_counts,
    record_layouts,
    record_writer,
    shard_plan,
    shard_writer,
    sorted_runs,
    task_settings,
)
from t5prep.prepare.block_tokenizer import BlockTokenizer
from t5prep.prepare.block_totals import BlockTotals
from t5prep.reading import blocks, formats
from t5prep.sources import RawFile
from t5prep.tasks import registry
from t5prep.tokens import loading, packing, span_corruption

COLUMNS = {"inputs_column": "text", "targets_column": "answer", "id_column": "id"}


@pytest.fixture(scope="module")
def tokenizer():
    return loading.load("sample:")


def settings(name, *, options=None, **choices):
    this = registry.get(name).task
    lengths = {"input_length": this.input_length, "target_length": this.target_length}
    return Settings(task=name, options=options or {}, **{**lengths, "splits": {"train": 1.0}, **choices})


def shards(path, out, choices, tokenizer, *, block_bytes=1 << 20, count=2, backwards=False):
    """The parsed records of each shard, and what was written."""
    out.mkdir(exist_ok=True)
    file = RawFile(path.name, str(path), path.stat().st_size)
    task = registry.get(choices.task).choose(choices.options)
    tokenize = BlockTokenizer(choices, task, tokenizer)
    special = {"pad_id": tokenizer.pad_id, "unk_id": tokenizer.unk_id}
    sort = block_sorter.BlockSorter(choices, task.task, files=[path.name], own_splits={}, **special)
    found = list(blocks.scan(file, formats.detect(path.name), block_bytes=block_bytes))
    spills = [sort(tokenize(block).table, block) for block in (reversed(found) if backwards else found)]
    arrange = record_layouts.choose(choices, task, tokenizer)
    blocks_counted, runs = BlockTotals(), [spill.run() for spill in spills]
    for spill in spills:
        blocks_counted.add(spill)
    specs = shard_plan.plan_shards(blocks_counted.records, blocks_counted.sizes, shards=count, drawn=True)
    written = [shard_writer.write(spec, runs, files=[path.name], out=out, arrange=arrange) for spec in specs]
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


def bare_range(choices, pairs):
    """Return a range of records that are still without padding, as they wait in spills."""
    sides = [[pair[side] for pair in pairs] for side in (0, 1)]
    lists = [(np.concatenate(side).astype(np.int32), np.cumsum([0, *map(len, side)])) for side in sides]
    ids, count = [f"r{i}" for i in range(len(pairs))], len(pairs)
    written = record_writer.RecordWriter(choices, pad_id=0, bare=True)(
        ids, *lists, [[]] * count, order=np.arange(count)
    )
    entries = np.zeros(count, sorted_runs.INDEX_ENTRY)
    entries["size"] = written.sizes
    for name, side in (("inputs", 0), ("tokens", 0), ("targets", 1), ("target_tokens", 1)):
        entries[name] = [len(ids) for ids in sides[side]]
    return record_layouts.Range(entries, written.data)


def test_packed_rows_of_one_range():
    choices = settings("text2text", options=COLUMNS, layout="packed", input_length=6, target_length=4)
    pairs = [([5, 6, 1], [9, 1]), ([7, 7, 7, 1], [8, 1]), ([4, 3, 1], [2, 1])]
    (built,) = record_layouts.PackedRows(choices, marked=False, pad_id=0)([bare_range(choices, pairs)])
    rows = [tfrecord.parse(record) for record in tfrecord.read(io.BytesIO(built.data))]
    assert [row["id"] for row in rows] == [[b"r0", b"r2"], [b"r1"]]
    assert [row["input_ids"] for row in rows] == [[5, 6, 1, 4, 3, 1], [7, 7, 7, 1, 0, 0]]
    assert [row["input_segment_ids"] for row in rows] == [[1, 1, 1, 2, 2, 2], [1, 1, 1, 1, 0, 0]]
    assert [row["labels"] for row in rows] == [[9, 1, 2, 1], [8, 1, -100, -100]]
    assert (built.counts.records, built.counts.examples, built.counts.inputs) == (2, 3, 10)


def test_spilled_records_stay_as_they_are():
    choices = settings("text2text", options=COLUMNS, input_length=6, target_length=4)
    ranges = [bare_range(choices, [([5, 1], [9, 1])]), bare_range(choices, [([7, 1], [8, 1]), ([3, 1], [8, 1])])]
    built = list(record_layouts.AsSpilled(marked=False)(ranges))
    assert [part.data for part in built] == [part.data for part in ranges]
    assert [part.counts.records for part in built] == [1, 2]
    assert built[1].counts.labels == {(8, 1): (0, 2)}


def tokens(record, name, pad):
    return [token for token in record[name] if token != pad]


def test_packed_rows_hold_the_same_examples_as_padded_ones(tmp_path, tokenizer):
    path = questions(tmp_path / "rows.jsonl")
    lengths = {"input_length": 96, "target_length": 24}
    plain, _ = shards(path, tmp_path / "plain", settings("text2text", options=COLUMNS, **lengths), tokenizer)
    choices = settings("text2text", options=COLUMNS, layout="packed", **lengths)
    packed, written = shards(path, tmp_path / "packed", choices, tokenizer)
    for plain_shard, packed_shard, item in zip(plain, packed, written, strict=True):
        expected = {
            record["id"][0]: (tokens(record, "input_ids", 0), tokens(record, "labels", -100)) for record in plain_shard
        }
        found = {}
        for record in packed_shard:
            (row,) = unpack({name: np.array(record[name]) for name in packing.FEATURES})
            assert len(row) == len(record["id"])
            assert len(record["input_ids"]) == len(record["input_positions"]) == 96
            assert len(record["labels"]) == len(record["label_positions"]) == 24
            for id, (inputs, labels) in zip(record["id"], row, strict=True):
                found[id] = inputs.tolist(), labels.tolist()
        assert found == expected
        assert len(packed_shard) < len(plain_shard)
        assert (item.counts.records, item.counts.examples) == (len(packed_shard), len(plain_shard))
        assert item.counts.inputs == sum(len(inputs) for inputs, _ in expected.values())
        assert sum(item.counts.joint.values()) == len(packed_shard)


@pytest.mark.parametrize("name", ["text2text", "span_corruption"])
def test_the_same_bytes_whatever_the_blocks(name, tmp_path, tokenizer):
    path = questions(tmp_path / "rows.jsonl")
    choices = (
        settings(name, options=COLUMNS, layout="packed", input_length=96, target_length=24)
        if name == "text2text"
        else settings(name, input_length=64)
    )
    _, one = shards(path, tmp_path / "one", choices, tokenizer)
    _, other = shards(path, tmp_path / "other", choices, tokenizer, block_bytes=4096, backwards=True)
    assert [item.shard for item in one] == [item.shard for item in other]
    reseeded = settings(name, options=choices.options, layout=choices.layout, input_length=64, seed=1)
    _, third = shards(path, tmp_path / "third", reseeded, tokenizer)
    assert [item.shard.sha256 for item in one] != [item.shard.sha256 for item in third]


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
    raw, targets = span_corruption.lengths(chosen.input_length)
    read, written = shards(path, out, chosen, tokenizer)
    found = Counter(tuple(document) for shard in read for document in rebuilt(shard, tokenizer))
    assert found == Counter(tuple(tokenizer.encode(text)) for text in texts)
    names = [record["id"][0] for shard in read for record in shard]
    assert len(set(names)) == len(names)
    for shard, item in zip(read, written, strict=True):
        full = [tokens(record, "input_ids", 0) for record in shard]
        assert all(len(row) == chosen.input_length for row in full[:-1]), "only the last row of a shard may be shorter"
        assert all(len(tokens(record, "labels", -100)) == targets for record in shard[:-1])
        assert item.counts.records == len(shard)
        assert (raw - 1) * len(shard) < sum(len(d) + 1 for d in rebuilt(shard, tokenizer)) + raw
    assert sum(item.counts.examples for item in written) == len(texts)


@pytest.mark.parametrize("input_length", [16, 64, 512])
def test_every_document_comes_back(input_length, tmp_path, tokenizer):
    path = questions(tmp_path / "rows.jsonl")
    texts = [json.loads(line)["text"] for line in path.read_text(encoding="utf-8").splitlines()]
    check_documents(path, tmp_path / "out", tokenizer, texts=texts, input_length=input_length)


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
        ({"input_length": 1024}, "Ask for --target-length 229"),
        ({"layout": "packed"}, "full already"),
        ({"input_length": 4096}, "100 sentinels"),
        ({"options": {"density": 2.0}}, "hides nothing"),
    ],
)
def test_documents_that_cannot_be_arranged(choices, says):
    wrong = settings("span_corruption", **choices)
    with pytest.raises(UsageError, match=says):
        task_settings.complete(wrong, registry.get("span_corruption").choose(wrong.options))


@pytest.mark.parametrize(("input_length", "target_length"), [(64, 14), (512, 114), (1024, 229)])
def test_the_command_line_gives_targets_the_length_that_inputs_need(tmp_path, input_length, target_length):
    from click.testing import CliRunner

    from t5prep.cli import prepare
    from t5prep.dataset import manifest

    source = questions(tmp_path / "rows.jsonl")
    choices = ["--source", str(source), "--tokenizer", "sample:", "--input-length", str(input_length), "--workers", "1"]
    done = CliRunner().invoke(prepare.command, ["span_corruption", *choices, "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    chosen = manifest.load(tmp_path / "out").settings
    assert (chosen.input_length, chosen.target_length) == (input_length, target_length)


def test_packing_says_which_side_is_too_short(tmp_path):
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps({"sentence": f"film {i}", "label": i % 2}) + "\n" for i in range(400)))
    choices = {"task": "sst2", "tokenizer": "sample:", "layout": "packed"}
    made = prepared(source, tmp_path / "short", target_length=4, **choices)
    (warning,) = made.warnings
    said = re.search(r"full of targets while 9\d% of their inputs is padding.*--target-length (\d+)", warning)
    assert said
    again = prepared(source, tmp_path / "mended", target_length=int(said[1]), **choices)
    assert again.warnings == []
    before, after = (m.splits["train"].lengths["packed"] for m in (made, again))
    assert before["examples"] == after["examples"]
    assert after["padding_after"] < 0.15 < 0.8 < before["padding_after"]


def test_a_packed_classification_is_advised_shorter_targets_not_inputs_of_thousands(tmp_path):
    source = tmp_path / "rows.jsonl"
    text = "the film has a long and winding plot " * 3
    source.write_text("".join(json.dumps({"sentence": f"{text}{i}", "label": i % 2}) + "\n" for i in range(200)))
    choices = {"task": "sst2", "tokenizer": "sample:", "layout": "packed", "input_length": 256}
    made = prepared(source, tmp_path / "long", target_length=128, **choices)
    (warning,) = made.warnings
    said = re.search(r"full of inputs while 9\d% of their targets is padding.*--target-length (\d+),", warning)
    assert said
    assert int(said[1]) < 16
    again = prepared(source, tmp_path / "mended", target_length=int(said[1]), **choices)
    assert again.warnings == []
    assert again.splits["train"].records == made.splits["train"].records
    assert again.ledger["targets"]["rows_cut"] == 0


def test_a_text_that_does_not_fit_whole_is_rejected_where_both_sides_must_agree(tmp_path):
    source = tmp_path / "rows.jsonl"
    texts = ["Soarele răsare.", "Soarele răsare în țară. " * 60]
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    made = prepared(source, tmp_path / "out", task="diacritics_ro", tokenizer="sample:", splits={"train": 1.0})
    assert (made.splits["train"].records, made.rejected) == (1, {"too long": 1})


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
            lambda *given, parts=parts, **how: share(*given, **how)._replace(block_bytes=parts, range_bytes=parts),
        )  # fmt: skip
        made = prepared(
            write_csv(tmp_path / "rows.csv", rows), tmp_path / f"{parts}", tokenizer="sample:", task="text2text",
            options=columns, input_length=40, target_length=8, layout=layout,
        )  # fmt: skip
        ledgers.append(made.ledger)
    assert ledgers[0] == ledgers[1]
    for side in ("inputs", "targets"):
        said = ledgers[0][side]
        worst = said["worst"]
        assert len(worst) == 10 == record_counts.WORST
        assert [one["lost"] for one in worst] == sorted((one["lost"] for one in worst), reverse=True)
        longest = {row["id"]: len(row["q" if side == "inputs" else "a"]) for row in rows}
        assert longest[worst[0]["id"]] == max(longest.values())
        assert sum(one["lost"] for one in worst) <= said["tokens_lost"]
