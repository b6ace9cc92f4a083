"""The tasks on the seeds' own corpora: counts, and that nothing changes but what should."""

import hashlib
import unicodedata
import zipfile
from pathlib import Path

import pytest
from raised import raises
from small_corpora import by_id, prepared, records

from t5prep import sources
from t5prep.dataset import manifest
from t5prep.errors import Reject, UsageError
from t5prep.reading import text_rows
from t5prep.reading.formats import Format
from t5prep.tasks import registry
from t5prep.tasks.corpora import diacritics_ro
from t5prep.tasks.example import Protected
from t5prep.tokens import loading


def rows(path: Path, columns: tuple[str, ...], kind: str):
    """All rows of a file with a header (or, for text, without one)."""
    data = path.read_bytes()
    if kind != "text":
        data = data[data.index(b"\n") + 1 :]
    parsed_rows = text_rows.read(data, Format(kind), columns=columns, first=1)
    return [row.record for row in parsed_rows if not row.blank]


def examples(name: str, records, **options):
    """Examples and reasons of records."""
    chosen = registry.get(name).choose(options)
    task_examples, reasons = [], []
    for record in records:
        try:
            task_examples.append(chosen.to_example(record))
        except Reject as reject:
            reasons.append(str(reject))
    return task_examples, reasons


@pytest.mark.extra("seeds")
@pytest.mark.parametrize(
    ("file", "count", "positive"), [("train", 60614, 33828), ("dev", 6735, 3741), ("test", 872, 444)]
)
def test_no_sentence_of_sst2_is_lost(shared_data, file, count, positive):
    task_examples, reasons = examples("sst2", rows(shared_data / "sst2" / f"{file}.tsv", ("sentence", "label"), "tsv"))
    assert (len(task_examples), reasons) == (count, [])
    assert sum(example.targets == "positive" for example in task_examples) == positive


ROMANIAN = {"ă", "â", "î", "ș", "ț"}


@pytest.mark.extra("seeds")
@pytest.mark.parametrize(("file", "count"), [("RO-STS.train.ro", 11498), ("ro_rrt.dev.txt", None)])
def test_nothing_but_diacritics_changes(shared_data, file, count):
    texts = rows(shared_data / "romanian" / file, ("text",), "text")
    task_examples, reasons = examples("diacritics_ro", texts)
    assert reasons == []
    assert count is None or len(task_examples) == count
    for record, example in zip(texts, task_examples, strict=True):
        assert len(example.inputs) == len(example.targets)
        for plain, right in zip(example.inputs, example.targets, strict=True):
            if plain != right:
                assert right.lower() in ROMANIAN
                # The same base letter: what is left when the mark is taken off.
                assert plain == unicodedata.normalize("NFD", right)[0]
        assert not ROMANIAN & set(example.inputs.lower())
        assert not set("şţŞŢ") & set(example.targets)
        cedillas = str.maketrans("şţŞŢ", "șțȘȚ")
        assert example.targets == unicodedata.normalize("NFC", record["text"]).translate(cedillas).strip()


def test_romanian_letters_are_restored_not_guessed():
    assert diacritics_ro.without_diacritics("Zürich, café, naïve, Đorđe") == "Zürich, café, naïve, Đorđe"


@pytest.mark.extra("seeds")
def test_webis_questions_are_causal_and_their_answers_apart(shared_data):
    columns = ("id", "question_processed", "answer_processed", "dataset")
    task_examples, reasons = examples(
        "causal_qa", rows(shared_data / "causalqa" / "webis_sample.csv", columns, "csv"), questions="causal"
    )
    assert (len(task_examples), reasons) == (4810, [])
    assert not any("\t" in example.targets for example in task_examples)
    assert sum(len(example.references) > 1 for example in task_examples) > 50


@pytest.fixture(scope="module")
def squad_zip(tmp_path_factory):
    """The archive's layout: two datasets, one in both partitions."""
    folder = tmp_path_factory.mktemp("webis")
    header = "id,question,question_processed,context,context_processed,answer,answer_processed\n"
    path = folder / "Webis-CausalQA-22-v-1.0.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for partition in ("original", "random"):
            for subset in ("squad2", "paq"):
                for split, count in (("train", 30), ("valid", 6)):
                    lines = []
                    for i in range(count):
                        context = f"because of {i}." if i % 2 else ""
                        lines.append(
                            f"{subset}-{partition}-{split}-{i},Why {i}?,why {i}?,,{context},So {i}\tThus {i},so\n"
                        )
                    name = f"input/{partition}-splits/{subset}_{split}_{partition}_split.csv"
                    archive.writestr(name, header + "".join(lines))
    return path


@pytest.mark.parametrize(("subset", "partition"), [("squad2", "original"), ("paq", "random")])
def test_one_dataset_of_the_webis_archive(squad_zip, tmp_path, subset, partition):
    options = {"subset": subset, "partition": partition, "questions": "all"}
    include = registry.get("causal_qa").choose(options).files
    resolved = sources.resolve(str(squad_zip), include=include)
    assert len(resolved.files) == 2
    dataset = prepared(
        squad_zip,
        tmp_path / "out",
        task="causal_qa",
        tokenizer="sample:",
        include=include,
        options=options,
        splits=None,
    )
    assert {name: split.records for name, split in dataset.splits.items()} == {"train": 30, "validation": 6}
    with zipfile.ZipFile(squad_zip) as archive:  # of each member its own bytes, not the whole archive's
        for file in dataset.source.files:
            inside = archive.read(file.name.removeprefix(f"{squad_zip.name}/"))
            assert (file.bytes, file.sha256) == (len(inside), hashlib.sha256(inside).hexdigest())
    record = by_id(tmp_path / "out")[f"{subset}-{partition}-valid-3"]
    assert record["references"] == [b"So 3", b"Thus 3"]


def test_eli5_says_why_it_cannot():
    with raises(UsageError, "task.subset-unavailable"):
        _ = registry.get("causal_qa").choose({"subset": "eli5"}).columns


@pytest.mark.extra("seeds")
def test_the_separator_is_unifiedqas(shared_data):
    path = shared_data / "causalqa" / "squad2_valid_webis_shape.csv"
    columns = tuple(path.read_text(encoding="utf-8").partition("\n")[0].split(","))
    task_examples, reasons = examples("causal_qa", rows(path, columns, "csv"))
    assert (len(task_examples), reasons) == (121, [])
    question = task_examples[0].inputs[0]
    assert isinstance(question, Protected)
    assert question.text.endswith("? \\n ")
    pieces = loading.load(str(shared_data / "t5_tokenizer" / "spiece.model"))
    assert [pieces.piece(token) for token in pieces.encode(question.text)][-3:] == ["▁", "<unk>", "n"]


@pytest.mark.extra("seeds")
@pytest.mark.slow
def test_every_corpus_prepares(shared_data, tmp_path):
    """The counts that issue 3 asks for, through the pipeline."""
    t5 = shared_data / "t5_tokenizer" / "spiece.model"
    for name, source, count, choices in (
        ("sst2", "sst2/train.tsv", 60614, {}),
        ("diacritics_ro", "romanian/RO-STS.train.ro", 11498, {"layout": "packed"}),
        ("translate_en_ro", "romanian/RO-STS.train.*", 11498, {}),
        ("causal_qa", "causalqa/squad2_valid_webis_shape.csv", 121, {}),
        ("span_corruption", "english/wikitext2_valid.txt", None, {}),
    ):
        dataset = prepared(shared_data / source, tmp_path / name, task=name, tokenizer=t5, **choices)
        example_count = sum(
            split.lengths.get("packed", {}).get("examples", split.records) for split in dataset.splits.values()
        )
        assert count is None or example_count + sum(dataset.rejected.values()) == count, name
        assert manifest.load(tmp_path / name) == dataset
        assert all(records(tmp_path / name).values())
