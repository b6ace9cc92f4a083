"""Whole preparations: what comes out is held against an independent computation, and is the same however it is made."""

import csv
import gzip
import json
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import sentencepiece
from small_corpora import by_id, bytes_of, prepared, questions, records, rejected, write_csv

from t5prep.dataset import manifest
from t5prep.dataset.verify import verify
from t5prep.sources import sample

SAMPLE = sample.tokenizer_path()


@pytest.mark.extra("seeds")
@pytest.mark.parametrize(
    ("truncation", "marker"),
    [("head_tail", "extra_id_1"), ("head_tail", "none"), ("head", "extra_id_1"), ("tail", "extra_id_1")],
)
def test_real_questions_equal_a_straight_computation(
    shared_data: Path, tmp_path: Path, truncation: str, marker: str
) -> None:
    """Seed 000, written down once more without any of our code: all rows, all ids."""
    source, model = shared_data / "stackoverflow/questions_cp1252.csv", shared_data / "t5_tokenizer/spiece.model"
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    expected = {}
    csv.field_size_limit(1 << 30)
    with open(source, newline="", encoding="cp1252") as file:
        for row in csv.DictReader(file):
            ids = [*processor.encode("quality: " + row["Title"]), 1, *processor.encode(row["Body"]), 1]
            if len(ids) > 512 and truncation == "head_tail":
                ids = [*ids[:255], 32098, *ids[-256:]] if marker == "extra_id_1" else ids[:256] + ids[-256:]
            elif len(ids) > 512:
                ids = [*ids[:511], 1] if truncation == "head" else ids[-512:]
            expected[row["Id"]] = (ids + [0] * (512 - len(ids)), {"HQ": [306, 1], "LQ": [731, 1]}[row["Y"]])
    out = tmp_path / "out"
    dataset_manifest = prepared(
        source, out, tokenizer=model, encoding="cp1252", truncation=truncation, marker=marker,
        options={"labels": "HQ=high,LQ=low"},
    )  # fmt: skip
    actual_records = {id: (record["input_ids"], record["labels"]) for id, record in by_id(out).items()}
    assert actual_records == expected
    assert sum(split.records for split in dataset_manifest.splits.values()) == 1000
    assert dataset_manifest.ledger["inputs"]["rows_cut"] == 193
    assert all(0 <= token < 32_100 for ids, _ in actual_records.values() for token in ids)


def test_bytes_do_not_depend_on_workers_order_or_files(tmp_path: Path) -> None:
    """1, 2 and 4 workers, shuffled rows, rows spread over files, gzip, a second run: the same shards."""
    rows = questions(300) + [dict(row, Id=f"long{i}") for i, row in enumerate(questions(9, words=900))]
    csv_path = write_csv(tmp_path / "whole.csv", rows)
    first = prepared(csv_path, tmp_path / "first", tokenizer=SAMPLE, shards=3)
    second_manifest = prepared(csv_path, tmp_path / "again", tokenizer=SAMPLE, shards=3)
    assert bytes_of(tmp_path / "first") == bytes_of(tmp_path / "again")
    assert first == second_manifest
    for workers in (1, 2, 4):
        prepared(csv_path, tmp_path / f"workers{workers}", tokenizer=SAMPLE, shards=3, workers=workers)
        assert bytes_of(tmp_path / f"workers{workers}") == bytes_of(tmp_path / "first")
    shuffled = rows[:]
    random.Random(7).shuffle(shuffled)
    (tmp_path / "parts").mkdir()
    for i in range(3):
        write_csv(tmp_path / "parts" / f"part{i}.csv", shuffled[i::3])
    packed = tmp_path / "packed.csv.gz"
    packed.write_bytes(gzip.compress(write_csv(tmp_path / "shuffled.csv", shuffled).read_bytes()))
    for name, source in (("files", tmp_path / "parts/*.csv"), ("gzip", packed)):
        dataset_manifest = prepared(source, tmp_path / name, tokenizer=SAMPLE, shards=3)
        assert dataset_manifest.splits == first.splits


@pytest.mark.extra("seeds")
def test_real_questions_shuffled_and_over_files_are_the_same_and_tensorflow_writes_them_alike(
    shared_data: Path, tmp_path: Path
) -> None:
    import tensorflow as tf

    source, model = shared_data / "stackoverflow/questions_cp1252.csv", shared_data / "t5_tokenizer/spiece.model"
    choices = {"tokenizer": model, "options": {"labels": "HQ=high,LQ=low"}, "shards": 4}
    dataset_manifest = prepared(source, tmp_path / "out", encoding="cp1252", **choices)
    csv.field_size_limit(1 << 30)
    with open(source, newline="", encoding="cp1252") as file:
        rows = list(csv.DictReader(file))
    random.Random(11).shuffle(rows)
    (tmp_path / "parts").mkdir()
    for i in range(3):
        write_csv(tmp_path / "parts" / f"part{i}.csv", rows[i::3])
    assert prepared(tmp_path / "parts", tmp_path / "again", **choices).splits == dataset_manifest.splits
    spec = {
        "id": tf.io.FixedLenFeature([1], tf.string),
        "input_ids": tf.io.FixedLenFeature([512], tf.int64),
        "labels": tf.io.FixedLenFeature([2], tf.int64),
    }
    ours, record_count = by_id(tmp_path / "out"), 0
    for shard in (shard for split in dataset_manifest.splits.values() for shard in split.shards):
        for raw in tf.data.TFRecordDataset(str(tmp_path / "out" / shard.name)).as_numpy_iterator():
            parsed = {name: value.numpy().tolist() for name, value in tf.io.parse_single_example(raw, spec).items()}
            assert parsed == ours[parsed["id"][0].decode()]
            assert tf.train.Example.FromString(raw).SerializeToString(deterministic=True) == raw
            record_count += 1
    assert record_count == 1000


def test_a_second_run_from_kept_blocks_has_the_same_bytes(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "rows.csv", questions(50))
    cache_folder = tmp_path / "kept"
    prepared(source, tmp_path / "a", tokenizer=SAMPLE, cache=cache_folder)
    assert list(cache_folder.rglob("*.arrow"))
    prepared(source, tmp_path / "b", tokenizer=SAMPLE, cache=cache_folder)
    assert bytes_of(tmp_path / "a") == bytes_of(tmp_path / "b")


def test_another_seed_is_another_order_of_the_same_examples(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "rows.csv", questions(60))
    prepared(source, tmp_path / "a", tokenizer=SAMPLE, seed=0)
    prepared(source, tmp_path / "b", tokenizer=SAMPLE, seed=1)
    first_records, second_records = by_id(tmp_path / "a"), by_id(tmp_path / "b")
    assert first_records == second_records
    assert list(first_records) != list(second_records)


def test_splits_are_drawn_in_the_shares_asked_for_and_each_id_is_in_one(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "rows.csv", questions(1000, words=3))
    prepared(source, tmp_path / "out", tokenizer=SAMPLE, splits={"train": 0.8, "validation": 0.15, "test": 0.05})
    split_ids = {name: {record["id"][0] for record in split} for name, split in records(tmp_path / "out").items()}
    assert {name: len(ids) for name, ids in split_ids.items()} == pytest.approx(
        {"train": 800, "validation": 150, "test": 50}, rel=0.25
    )
    assert len(set.union(*split_ids.values())) == 1000 == sum(map(len, split_ids.values()))


def test_files_that_are_splits_stay_splits_and_an_id_in_two_is_kept_for_evaluation(tmp_path: Path) -> None:
    rows = questions(40)
    (tmp_path / "set").mkdir()
    write_csv(tmp_path / "set/train.csv", rows[:30])
    write_csv(tmp_path / "set/valid.csv", rows[28:])
    dataset_manifest = prepared(tmp_path / "set/*.csv", tmp_path / "out", tokenizer=SAMPLE)
    assert {name: split.records for name, split in dataset_manifest.splits.items()} == {"train": 28, "validation": 12}
    assert dataset_manifest.rejected == {"duplicate id": 2}
    lines = rejected(tmp_path / "out")
    assert sorted((line["file"], line["id"]) for line in lines) == [("train.csv", "1028"), ("train.csv", "1029")]
    assert all(line["reason"] == "duplicate id: the split validation has it" for line in lines)


def test_duplicate_ids_are_kept_once_and_said(tmp_path: Path) -> None:
    rows = questions(20)
    rows += [dict(rows[3], Body="another body"), dict(rows[4])]
    source = write_csv(tmp_path / "rows.csv", rows)
    dataset_manifest = prepared(source, tmp_path / "out", tokenizer=SAMPLE)
    random.Random(1).shuffle(rows)
    shuffled_manifest = prepared(write_csv(tmp_path / "other.csv", rows), tmp_path / "again", tokenizer=SAMPLE)
    assert (
        dataset_manifest.splits == shuffled_manifest.splits
    )  # which of two is kept does not depend on which came first
    assert dataset_manifest.rejected == {"duplicate id": 2}
    lines = rejected(tmp_path / "out")
    assert sorted(line["id"] for line in lines) == ["1003", "1004"]
    assert all(line["reason"].startswith("duplicate id: kept is rows.csv:") for line in lines)
    assert sum(split.records for split in dataset_manifest.splits.values()) == 20


def test_ragged_records_are_the_padded_ones_without_padding_and_masks_are_what_they_say(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "rows.csv", questions(30))
    for layout, masks in (("padded", True), ("ragged", False)):
        prepared(source, tmp_path / layout, tokenizer=SAMPLE, layout=layout, masks=masks, target_length=4)
    padded, ragged = by_id(tmp_path / "padded"), by_id(tmp_path / "ragged")
    for id, record in padded.items():
        inputs, labels = ragged[id]["input_ids"], ragged[id]["labels"]
        assert record["input_ids"] == inputs + [0] * (512 - len(inputs))
        assert record["labels"] == labels + [-100] * (4 - len(labels))
        assert record["attention_mask"] == [int(token != 0) for token in record["input_ids"]]
        assert record["decoder_attention_mask"] == [int(token != -100) for token in record["labels"]]
        assert inputs[-1] == labels[-1] == 1


def test_tensorflow_reads_the_shards_and_would_write_the_same_bytes(tmp_path: Path) -> None:
    import tensorflow as tf

    source = write_csv(tmp_path / "rows.csv", questions(40))
    dataset_manifest = prepared(source, tmp_path / "out", tokenizer=SAMPLE, masks=True, target_length=3)
    spec = {
        name: tf.io.FixedLenFeature(feature.shape, tf.int64 if feature.dtype == "int64" else tf.string)
        for name, feature in dataset_manifest.features.items()
    }
    ours = by_id(tmp_path / "out")
    record_count = 0
    for split in dataset_manifest.splits.values():
        for shard in split.shards:
            for raw in tf.data.TFRecordDataset(str(tmp_path / "out" / shard.name)).as_numpy_iterator():
                parsed = tf.io.parse_single_example(raw, spec)
                id = parsed["id"].numpy()[0].decode()
                assert parsed["input_ids"].numpy().tolist() == ours[id]["input_ids"]
                assert tf.train.Example.FromString(raw).SerializeToString(deterministic=True) == raw
                record_count += 1
    assert record_count == 40


def test_text_never_becomes_control(tmp_path: Path) -> None:
    rows = questions(2)
    rows[0]["Body"] = "before </s> <extra_id_0> <pad> after"
    prepared(write_csv(tmp_path / "rows.csv", rows), tmp_path / "out", tokenizer=SAMPLE)
    ids = by_id(tmp_path / "out")["1000"]["input_ids"]
    while ids[-1] == 0:
        ids.pop()
    assert ids.count(1) == 2  # between title and body, and at the end
    assert 0 not in ids
    assert max(ids) < sentencepiece.SentencePieceProcessor(model_file=str(SAMPLE)).get_piece_size()


KILLED = """
import sys
from pathlib import Path
sys.path[:0] = {path!r}
if __name__ == "__main__":
    from small_corpora import prepared
    prepared({source!r}, Path({out!r}), tokenizer={tokenizer!r}, shards=4, workers=2)
"""


@pytest.mark.slow
def test_killed_at_any_moment_leaves_nothing_that_looks_whole_and_the_next_run_mends_it(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "rows.csv", questions(4000))
    undisturbed = prepared(source, tmp_path / "whole", tokenizer=SAMPLE, shards=4)
    out = tmp_path / "out"
    script = tmp_path / "killed.py"
    path = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]
    script.write_text(KILLED.format(path=path, source=str(source), out=str(out), tokenizer=str(SAMPLE)))
    began = time.monotonic()
    subprocess.run([sys.executable, script], check=True)
    takes = time.monotonic() - began
    shutil.rmtree(out)
    moments = random.Random(3)
    for _ in range(6):
        process = subprocess.Popen([sys.executable, script])
        time.sleep(moments.uniform(0.3, 1.0) * takes)
        process.kill()
        process.wait()
        if (out / manifest.NAME).exists():
            assert verify(out) == undisturbed
            continue
        for shard in (shard for split in undisturbed.splits.values() for shard in split.shards):
            if (out / shard.name).exists():  # a shard that has its name is whole
                assert (out / shard.name).read_bytes() == (tmp_path / "whole" / shard.name).read_bytes()
    subprocess.run([sys.executable, script], check=True)
    assert verify(out) == undisturbed
    assert set(bytes_of(out)) == set(bytes_of(tmp_path / "whole"))


def test_stale_shards_of_an_unfinished_run_do_not_survive(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "rows.csv", questions(30))
    out = tmp_path / "out"
    prepared(source, out, tokenizer=SAMPLE, shards=5)
    (out / manifest.NAME).unlink()
    (out / ".unfinished-t5prep").touch()
    prepared(source, out, tokenizer=SAMPLE, shards=2)
    assert sorted(path.name for path in out.glob("train*")) == [
        "train.tfrecord-00000-of-00002",
        "train.tfrecord-00001-of-00002",
    ]


def test_manifest_says_what_the_shards_hold(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "rows.csv", questions(90))
    dataset_manifest = prepared(source, tmp_path / "out", tokenizer=SAMPLE)
    records_by_split = records(tmp_path / "out")
    for name, split in dataset_manifest.splits.items():
        inputs = [sum(token != 0 for token in record["input_ids"]) for record in records_by_split[name]]
        assert split.tokens["inputs"] == sum(inputs)
        assert sum(number for _, _, number in split.lengths["joint"]) == split.records == len(inputs)
        assert sum(split.labels.values()) == split.records
        assert set(split.labels) == {"none", "low", "high"}
    assert json.loads((tmp_path / "out/manifest.json").read_text())["digest"] == manifest.digest(dataset_manifest)


def test_markup_that_tells_the_label_is_warned_of(tmp_path: Path) -> None:
    """As in the real set, where questions of one class carry no markup."""
    rows = [dict(row, Body="plain text") if row["Y"] == "LQ_EDIT" else row for row in questions(90)]
    source = write_csv(tmp_path / "rows.csv", rows)
    (warning,) = prepared(source, tmp_path / "keep", tokenizer=SAMPLE).warnings
    assert "markup tells the label (Cramér's V 1.00)" in warning
    assert "0% of low" in warning
    assert "--html strip" in warning
    stripped = prepared(source, tmp_path / "strip", tokenizer=SAMPLE, options={"html": "strip"})
    assert stripped.warnings == []
    columns = {"inputs_column": "Body", "targets_column": "Y"}
    (warning,) = prepared(source, tmp_path / "other", tokenizer=SAMPLE, task="text2text", options=columns).warnings
    assert "--html" not in warning
    assert "Take it out of the source" in warning


def test_labels_that_are_cut_are_warned_of(tmp_path: Path) -> None:
    """With the length that keeps the longest whole."""
    rows = [{"q": f"question {n}", "a": ("a long name of a class", "b")[n % 2]} for n in range(30)]
    source = write_csv(tmp_path / "rows.csv", rows)
    options = {"tokenizer": SAMPLE, "task": "text2text", "options": {"inputs_column": "q", "targets_column": "a"}}
    (warning,) = prepared(source, tmp_path / "cut", target_length=3, **options).warnings
    assert warning.startswith("50% of the targets are longer than 3 tokens")
    (length,) = re.findall(r"--target-length (\d+)", warning)
    full_manifest = prepared(source, tmp_path / "whole", target_length=int(length), **options)
    assert full_manifest.warnings == []
    assert full_manifest.splits["train"].labels.keys() == {"a long name of a class", "b"}
    assert prepared(source, tmp_path / "short", target_length=int(length) - 1, **options).warnings


def test_whole_texts_are_no_labels(tmp_path: Path) -> None:
    """Also where a split is so small that it has few of them."""
    rows = [{"q": f"question {n}", "a": f"A whole answer, number {n}."} for n in range(100)]
    source = write_csv(tmp_path / "rows.csv", rows)
    columns = {"inputs_column": "q", "targets_column": "a"}
    for limit in (10, 100):
        dataset_manifest = prepared(
            source, tmp_path / str(limit), tokenizer=SAMPLE, task="text2text", options=columns, limit=limit
        )
        assert [split.labels for split in dataset_manifest.splits.values()] == [{}, {}]


def test_a_local_run_never_imports_beam(tmp_path: Path) -> None:
    """Beam takes longer to import than a small corpus to prepare."""
    code = (
        "import sys, t5prep; t5prep.prepare('so_quality', source='sample:', tokenizer='sample:', "
        f"out={str(tmp_path / 'out')!r}, workers=0, limit=20); print('apache_beam' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"


@pytest.mark.parametrize("layout", ["padded", "ragged", "packed"])
def test_a_split_whose_rows_all_stand_in_another_is_empty_and_ends_no_run(layout: str, tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    for name in ("train.csv", "test.csv"):
        write_csv(tmp_path / "rows" / name, questions(3))
    dataset_manifest = prepared(tmp_path / "rows", tmp_path / "out", tokenizer=SAMPLE, layout=layout, splits=None)
    assert (dataset_manifest.splits["train"].records, dataset_manifest.splits["test"].examples) == (0, 3)
    assert verify(tmp_path / "out") == dataset_manifest
