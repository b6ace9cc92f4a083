"""Names of numbered classes are used by themselves: from a Parquet file's metadata, or from a Hub dataset's card."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from raised import raises
from small_corpora import prepared

import t5prep
from t5prep.errors import SourceError
from t5prep.reading import formats
from t5prep.sources import card

NAMES = ["World", "Sports", "Sci/Tech"]
COLUMNS = {"inputs_column": "text", "targets_column": "label"}
COMMON_OPTIONS = {"task": "text2text", "tokenizer": "sample:", "splits": {"train": 1.0}, "target_length": 16}


def news(path: Path, *, names: list[str] | None = None, labels: pa.DataType = pa.int64()) -> Path:  # noqa: B008 - a type
    """A Parquet file as `datasets` writes it."""
    table = pa.table({"text": [f"news {n}" for n in range(9)], "label": pa.array([n % 3 for n in range(9)], labels)})
    feature = {"names": names or NAMES, "_type": "ClassLabel"}
    facts = {"info": {"features": {"text": {"dtype": "string", "_type": "Value"}, "label": feature}}}
    pyarrow.parquet.write_table(table.replace_schema_metadata({"huggingface": json.dumps(facts)}), path)
    return path


def test_a_parquet_file_names_its_classes(tmp_path: Path) -> None:
    manifest = prepared(news(tmp_path / "a.parquet"), tmp_path / "out", options=COLUMNS, **COMMON_OPTIONS)
    assert manifest.settings.options["label_map"] == "0=World,1=Sports,2=Sci/Tech"
    assert manifest.task.classes == NAMES
    assert sum(manifest.splits["train"].labels.values()) == 9
    assert {"World", "Sports"} < set(manifest.splits["train"].labels)
    assert prepared(tmp_path / "a.parquet", tmp_path / "out", options=COLUMNS, **COMMON_OPTIONS) == manifest


def test_a_map_of_ones_own_is_used_instead(tmp_path: Path) -> None:
    options = {**COLUMNS, "label_map": "0=a,1=b,2=c"}
    manifest = prepared(news(tmp_path / "a.parquet"), tmp_path / "out", options=options, **COMMON_OPTIONS)
    assert manifest.task.classes == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("names", "labels"), [(["a, b", "c=d", "e"], pa.int64()), (["a", "a", "b"], pa.int64()), (NAMES, pa.string())]
)
def test_what_cannot_be_a_map_stays_a_number(tmp_path: Path, names: list[str], labels: pa.DataType) -> None:
    source = news(tmp_path / "a.parquet", names=names, labels=pa.int64())
    if labels == pa.string():
        table = pyarrow.parquet.read_table(source)
        pyarrow.parquet.write_table(table.set_column(1, "label", table["label"].cast(labels)), source)
    manifest = prepared(source, tmp_path / "out", options=COLUMNS, **COMMON_OPTIONS)
    assert manifest.settings.options["label_map"] == ""
    assert manifest.splits["train"].examples == 9


@pytest.mark.parametrize("metadata", [None, {"huggingface": "no json"}, {"huggingface": "[]"}, {"huggingface": "{}"}])
def test_metadata_without_names_is_no_error(metadata: dict | None) -> None:
    schema = pa.schema([("label", pa.int64())], metadata=metadata)
    assert formats.of_schema(schema, "label") == []


def test_a_card_names_the_classes_of_a_config() -> None:
    def info(config: str, *names: str) -> dict:
        numbered = {str(n): name for n, name in enumerate(names)}
        return {"config_name": config, "features": [{"name": "label", "dtype": {"class_label": {"names": numbered}}}]}

    facts = {"dataset_info": [info("one", "a", "b"), info("two", *"abcdefghijkl")]}
    assert card.class_names(facts, "two") == {"label": tuple("abcdefghijkl")}
    assert card.class_names(facts, "three") == {}
    assert card.class_names({"dataset_info": {"features": [{"name": "x", "dtype": "string"}]}}) == {}
    assert card.class_names({"dataset_info": "broken"}) == {}


@pytest.mark.parametrize(
    "feature",
    [
        {"name": "label", "dtype": {"class_label": {"names": {"neg": "0", "pos": "1"}}}},
        {"name": "label", "dtype": {"class_label": ["neg", "pos"]}},
        {"dtype": {"class_label": {"names": ["neg", "pos"]}}},
    ],
)
def test_a_card_that_somebody_wrote_otherwise_names_none(feature: dict) -> None:
    assert card.class_names({"dataset_info": {"features": [feature]}}) == {}


CLASSES = {"names": NAMES, "_type": "ClassLabel"}
IN_CARD = {"class_label": {"names": {str(number): name for number, name in enumerate(NAMES)}}}


@pytest.mark.parametrize(
    ("value", "column", "feature", "described"),
    [
        ({"kind": 1}, "label.kind", {"kind": CLASSES}, {"struct": [{"name": "kind", "dtype": IN_CARD}]}),
        ([1, 1], "label", {"feature": CLASSES, "_type": "List"}, {"list": IN_CARD}),
        ([1], "label[]", [CLASSES], {"sequence": IN_CARD}),
        ([{"kind": 1}], "label.kind", {"feature": {"kind": CLASSES}, "_type": "List"}, {"list": [{"name": "kind", "dtype": IN_CARD}]}),
        (
            {"a": {"b": [1]}},
            "label.a.b[]",
            {"a": {"b": {"feature": CLASSES, "_type": "LargeList"}}},
            {"struct": [{"name": "a", "struct": [{"name": "b", "large_list": IN_CARD}]}]},
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "origin", ["parquet", "card", "infos", pytest.param("python", marks=pytest.mark.extra("datasets"))]
)
def test_classes_inside_of_a_column_have_their_names(
    origin: str, value: object, column: str, feature: object, described: dict, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    rows = [{"text": f"news {n}", "label": value} for n in range(9)]
    features = {"text": {"dtype": "string", "_type": "Value"}, "label": feature}
    source_argument: object = str(source)
    if origin == "parquet":
        table = pa.Table.from_pylist(rows)
        facts = json.dumps({"info": {"features": features}})
        pyarrow.parquet.write_table(table.replace_schema_metadata({"huggingface": facts}), source / "a.parquet")
    elif origin == "python":
        import datasets

        source_argument = datasets.Dataset.from_list(rows, features=datasets.Features.from_dict(features))
    else:
        (source / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        if origin == "infos":
            (source / "dataset_infos.json").write_text(json.dumps({"me--news": {"features": features}}))
        else:
            facts = json.dumps({"dataset_info": {"features": [{"name": "label", **described}]}})
            (source / "README.md").write_text(f"---\n{facts}\n---\n")
    options = {
        **COLUMNS,
        "targets_column": column,
        **{name: COMMON_OPTIONS[name] for name in ("tokenizer", "target_length")},
    }
    manifest = t5prep.prepare("text2text", source=source_argument, out=tmp_path / "out", workers=0, **options)
    assert manifest.settings.options["label_map"] == "0=World,1=Sports,2=Sci/Tech"
    assert manifest.rejected == {}


def test_a_text_file_may_have_the_names_themselves(tmp_path: Path) -> None:
    """The classes are numbered as the card names them, not as the alphabet has them."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.csv").write_text("text,label\n" + "".join(f"news {n},{NAMES[n % 3]}\n" for n in range(9)))
    facts = json.dumps({"dataset_info": {"features": [{"name": "label", "dtype": IN_CARD}]}})
    (source / "README.md").write_text(f"---\n{facts}\n---\n")
    manifest = prepared(source, tmp_path / "out", options=COLUMNS, **COMMON_OPTIONS)
    assert (manifest.task.classes, manifest.rejected) == (NAMES, {})
    assert sum(manifest.splits["train"].labels.values()) == 9


def test_papers_beside_data_are_not_rows(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("train", "test"):
        (source / f"{name}.csv").write_text("text,label\n" + "".join(f"{name} {n},yes\n" for n in range(4)))
    (source / "LICENSE").write_text("MIT")
    (source / "README.txt").write_text("read me")
    (source / "paper.pdf").write_bytes(b"%PDF")
    manifest = prepared(source, tmp_path / "out", options=COLUMNS, **{**COMMON_OPTIONS, "splits": None})
    assert {name: split.records for name, split in manifest.splits.items()} == {"train": 4, "test": 4}
    assert sorted(manifest.rows) == ["test.csv", "train.csv"]
    assert "about the data: LICENSE, README.txt, paper.pdf" in capsys.readouterr().err
    (source / "notes").write_text("anything else is asked about")
    with raises(Exception, "file.unknown-format", "notes"):
        prepared(source, tmp_path / "other", options=COLUMNS, **COMMON_OPTIONS)


def test_what_zstandard_packed_is_read(tmp_path: Path) -> None:
    rows = "text,label\n" + "".join(f"text {n},{n % 2}\n" for n in range(5000))
    packed = pa.Codec("zstd").compress(rows.encode()).to_pybytes()
    (tmp_path / "rows.csv.zst").write_bytes(packed)
    manifest = prepared(tmp_path / "rows.csv.zst", tmp_path / "out", options=COLUMNS, **COMMON_OPTIONS)
    assert manifest.rows["rows.csv.zst"].examples == 5000
    (tmp_path / "rows.csv.zst").write_bytes(packed[:-20])
    with raises(SourceError, "file.damaged", "rows.csv.zst"):
        prepared(tmp_path / "rows.csv.zst", tmp_path / "half", options=COLUMNS, **COMMON_OPTIONS)
