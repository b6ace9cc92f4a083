"""Which files of a source are read, and the split of each; what is left out is said."""

import dataclasses
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from raised import raises
from servers.internet import Internet
from small_corpora import by_id, byt5, pairs, rejected

import t5prep
from t5prep import sources
from t5prep.errors import SourceError, T5prepError, UsageError
from t5prep.options.files import FileOptions, RowFileOptions
from t5prep.reading import columns, formats, source_files

COMMON_OPTIONS: dict[str, Any] = {
    "tokenizer": "sample:",
    "inputs_column": "text",
    "targets_column": "label",
    "workers": 0,
}
COMMON_OPTIONS |= {"input_length": 32, "target_length": 8}


def table(name: str, rows: int = 6, *, label: bool = True, split: str = "") -> str:
    """Return a CSV whose rows say which file they are of."""
    header = ",".join(["text", *(["label"] if label else []), *(["part"] if split else [])])
    parts = split.split() or [""]
    lines = (
        ",".join([f"{name} row {row}", *(["good"] if label else []), *([parts[row % len(parts)]] if split else [])])
        for row in range(rows)
    )
    return "\n".join([header, *lines, ""])


def folder_of(tmp_path: Path, files: dict[str, str]) -> Path:
    """Return a folder with files."""
    folder = tmp_path / "source"
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


def rows_of(manifest: Any) -> dict[str, int]:
    """Return the number of records of each split."""
    return {name: split.records for name, split in manifest.splits.items()}


def prepared(source: object, tmp_path: Path, **choices: Any) -> Any:
    """Return the manifest of a dataset."""
    return t5prep.prepare("text2text", source=str(source), out=tmp_path / "out", **(COMMON_OPTIONS | choices))


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (["train.csv", "eval.csv"], {"test": 6, "train": 6}),
        (["training.csv", "testing.csv", "dev.csv"], {"test": 6, "train": 6, "validation": 6}),
        (["data/train_sft-00000-of-00001.csv", "data/x-00000-of-00001.csv"], {"train_sft": 6, "x": 6}),
    ],
)
def test_no_row_of_an_evaluation_file_is_trained_on(names: list[str], splits: dict[str, int], tmp_path: Path) -> None:
    manifest = prepared(folder_of(tmp_path, {name: table(name) for name in names}), tmp_path)
    assert rows_of(manifest) == splits


def test_a_file_whose_name_tells_no_split_is_named_and_not_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = folder_of(tmp_path, {name: table(name) for name in ("train.csv", "test.csv", "holdout.csv")})
    assert rows_of(prepared(source, tmp_path)) == {"test": 6, "train": 6}
    assert "holdout.csv" in capsys.readouterr().err
    manifest = prepared(
        source, tmp_path, split_files="train=train.csv,test=test.csv,holdout=holdout.csv", overwrite=True
    )
    assert rows_of(manifest) == {"holdout": 6, "test": 6, "train": 6}


def test_names_that_only_hint_at_splits_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = folder_of(tmp_path, {name: table(name, 30) for name in ("traindata.csv", "testdata.csv")})
    prepared(source, tmp_path)
    assert "traindata.csv" in (message := capsys.readouterr().err)
    assert "--split-files" in message


def test_a_corpus_in_two_formats_is_read_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = "".join(json.dumps({"text": f"row {row}", "label": "good"}) + "\n" for row in range(30))
    source = folder_of(tmp_path, {"data.csv": table("data", 30), "data.jsonl": lines})
    assert sum(rows_of(prepared(source, tmp_path)).values()) == 30
    assert "data.csv" in (message := capsys.readouterr().err)
    assert "--skip-files '*.jsonl'" in message
    manifest = prepared(source, tmp_path, skip_files="*.jsonl", overwrite=True)
    assert [file.name for file in manifest.source.files] == ["data.csv"]


def test_a_test_file_without_targets_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {"train.csv": table("a", 40), "test.csv": table("b", label=False), "dev.csv": table("c")}
    manifest = prepared(folder_of(tmp_path, files), tmp_path)
    assert rows_of(manifest) == {"train": 40, "validation": 6}
    message = capsys.readouterr().err
    assert "test.csv" in message
    assert '"label"' in message
    (tmp_path / "source" / "dev.csv").unlink()
    manifest = prepared(tmp_path / "source", tmp_path, overwrite=True)
    assert rows_of(manifest).keys() == {"train", "validation"}
    assert sum(rows_of(manifest).values()) == 40


def test_a_file_that_lacks_a_column_is_refused_with_the_option_that_leaves_it_out(tmp_path: Path) -> None:
    source = folder_of(tmp_path, {"a.csv": table("a"), "b.csv": table("b", label=False)})
    with raises(SourceError, "column.missing", "b.csv"):
        prepared(source, tmp_path)
    assert sum(rows_of(prepared(source, tmp_path, skip_files=["b.csv"])).values()) == 6


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_column_tells_the_split_of_each_row(tmp_path: Path, kind: str) -> None:
    values = ["train", "Dev", "test", "gold", "", "no split"]
    rows = [{"text": f"row {row}", "label": "good", "part": values[row % 6]} for row in range(60)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    if kind == "csv":
        text = "\n".join(["text,label,part", *(",".join(row.values()) for row in rows), ""])
    path = tmp_path / f"all.{kind}"
    path.write_text(text)
    manifest = prepared(path, tmp_path, split_column="part")
    assert rows_of(manifest) == {"gold": 10, "test": 10, "train": 10, "validation": 10}
    assert {(line["row"] - 1) % 6 for line in rejected(tmp_path / "out")} == {4, 5}
    assert len(by_id(tmp_path / "out")) == 40


def test_split_files_of_python_may_be_a_dict(tmp_path: Path) -> None:
    source = folder_of(tmp_path, {name: table("x") for name in ("a.csv", "b.csv", "c,d.csv")})
    manifest = prepared(source, tmp_path, split_files={"train": ["a.csv", "c,d.csv"], "test": "b.csv"})
    assert rows_of(manifest) == {"test": 6, "train": 12}


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"split_files": "train=no.csv"}, ("source.unmatched-pattern", "train", "no.csv")),
        ({"split_files": "train=*.csv,test=b.csv"}, ("split.overlap", "b.csv", "train", "test")),
        ({"split_files": "a.csv"}, ("option.malformed",)),
        ({"skip_files": "no.csv"}, ("source.unmatched-pattern",)),
        ({"skip_files": "*"}, ("source.files-missing",)),
        ({"split_files": "train=a.csv", "splits": {"train": 1.0}}, ("option.conflict",)),
        ({"split_column": "label", "held_out": 0.5}, ("option.conflict",)),
        ({"split_column": "part"}, ("column.missing", "part")),
    ],
)
def test_what_the_options_cannot_mean_is_refused(
    tmp_path: Path, choices: dict[str, Any], message: tuple[str, ...]
) -> None:
    source = folder_of(tmp_path, {name: table(name) for name in ("a.csv", "b.csv")})
    with raises(T5prepError, *message):
        prepared(source, tmp_path, **choices)


def test_archives_tell_splits_by_their_own_names_or_by_those_inside(tmp_path: Path) -> None:
    file = sources.RawFile("train.zip/a.csv", "/x", 1, member="a.csv")
    inside = sources.RawFile("corpus.zip/test.csv", "/x", 1, member="test.csv")
    source = sources.Resolved("x", "", (file, sources.RawFile("test.csv", "/y", 1)), "", "")
    assert source_files.select(source).splits == {"train", "test"}
    source = dataclasses.replace(
        source, files=(inside, dataclasses.replace(inside, name="corpus.zip/train.csv", member="train.csv"))
    )
    assert source_files.select(source).splits == {"train", "test"}


CARD = {"configs": [{"config_name": "default", "data_files": [
    {"split": "train", "path": "data.csv"}, {"split": "test", "path": ["hold*.csv"]}]}]}  # fmt: skip
FILES = {"data.csv": table("data"), "holdout.csv": table("holdout"), "other.csv": table("other")}


def test_a_card_of_the_hub_tells_the_splits(internet: Internet, tmp_path: Path) -> None:
    source = internet.hub.publish("me/cards", {name: text.encode() for name, text in FILES.items()}, card=CARD)
    assert rows_of(prepared(source, tmp_path)) == {"test": 6, "train": 6}
    manifest = prepared(source, tmp_path, split_files="train=other.csv,test=data.csv", overwrite=True)
    assert [file.name for file in manifest.source.files] == ["data.csv", "other.csv"]


def test_a_card_in_a_folder_tells_the_splits(tmp_path: Path) -> None:
    card = "---\nconfigs:\n- config_name: default\n  data_files:\n  - {split: train, path: data.csv}\n"
    card += "  - {split: test, path: 'hold*.csv'}\n- config_name: rest\n  data_files: other.csv\n---\n# Me\n"
    source = folder_of(tmp_path, {"README.md": card, **FILES})
    assert rows_of(prepared(source, tmp_path)) == {"test": 6, "train": 6}
    manifest = prepared(f"{source}#rest", tmp_path, overwrite=True)
    assert [file.name for file in manifest.source.files] == ["other.csv"]
    with raises(SourceError, "source.unknown-config", "no"):
        prepared(f"{source}#no", tmp_path)


def test_a_standalone_card_counts_more_than_the_readme(internet: Internet, tmp_path: Path) -> None:
    standalone = "configs:\n- config_name: default\n  data_files:\n  - {split: train, path: other.csv}\n"
    standalone += "  - {split: test, path: data.csv}\n"
    files = {".huggingface.yaml": standalone, **FILES}
    source = internet.hub.publish("me/yaml", {name: text.encode() for name, text in files.items()}, card=CARD)
    manifest = prepared(source, tmp_path)
    assert [file.name for file in manifest.source.files] == ["data.csv", "other.csv"]
    manifest = prepared(folder_of(tmp_path, files), tmp_path, overwrite=True)
    assert rows_of(manifest) == {"test": 6, "train": 6}
    assert [file.name for file in manifest.source.files] == ["data.csv", "other.csv"]


def test_a_config_may_name_the_classes_itself(internet: Internet, tmp_path: Path) -> None:
    rows = b"text,label\n" + b"".join(b"row %d,%d\n" % (row, row % 2) for row in range(20))
    features = [{"name": "label", "dtype": {"class_label": {"names": {"0": "bad", "1": "good"}}}}]
    card = {"configs": [{"config_name": "default", "data_files": "x.csv", "features": features}]}
    source = internet.hub.publish("me/features", {"x.csv": rows}, card=card)
    assert prepared(source, tmp_path).settings.options["label_map"] == "0=bad,1=good"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"data_files": "data.csv", "header": 0, "names": ["a", "b"]}, ("source.invalid-card", "header", "0")),
        ({"data_files": "data.csv", "skiprows": 2}, ("source.invalid-card", "skiprows", "2")),
        ({"data_files": "data.csv", "header": None}, ("source.invalid-card", "header", "None")),
        ({"data_files": "data.csv", "quotechar": "'"}, ("source.invalid-card",)),
        ({"data_files": "gone.csv"}, ("source.invalid-card", "gone.csv")),
        (
            {"data_files": [{"split": "train", "path": "*.csv"}, {"split": "test", "path": "data.csv"}]},
            ("source.invalid-card", "train"),
        ),
        ({"data_files": [{"split": "a.b", "path": "data.csv"}]}, ("split.invalid-name",)),
        ({"data_files": [{"split": "train"}]}, ("source.invalid-card",)),
    ],
)
def test_what_a_card_says_and_cannot_be_obeyed_is_refused(
    config: dict[str, Any], message: tuple[str, ...], internet: Internet, tmp_path: Path
) -> None:
    card = {"configs": [{"config_name": "default", **config}]}
    source = internet.hub.publish("me/odd", {name: text.encode() for name, text in FILES.items()}, card=card)
    with raises((SourceError, UsageError), *message):
        prepared(source, tmp_path)


ROWS = [(f"caf\xe9 {row}", ["good", "bad"][row % 2]) for row in range(6)]
WRITTEN = "".join(f"{text}|{label}\n" for text, label in ROWS)


@pytest.mark.extra("datasets")
@pytest.mark.parametrize(
    ("name", "content", "parameters"),
    [
        ("data.csv", f"text|label\n{WRITTEN}".encode(), {"sep": "|"}),
        ("data.csv", f"text|label\n{WRITTEN}".encode("latin-1"), {"delimiter": "|", "encoding": "latin-1"}),
        ("data.csv", WRITTEN.encode(), {"sep": "|", "names": ["text", "label"], "header": None}),
        ("data.csv", WRITTEN.replace("|", ",").encode(), {"column_names": ["text", "label"]}),
        ("data.csv", f"text,label\n{WRITTEN.replace('|', ',')}".replace("caf", "ca\\f").encode(), {"escapechar": "\\"}),
        (
            "data.tsv",
            f"text\tlabel\n{WRITTEN}".replace("|", "\t").encode(),
            {"sep": "\t", "header": "infer", "quoting": 0, "na_filter": False},
        ),
        (
            "data.json",
            json.dumps({"a": 1, "rows": [{"text": text, "label": label} for text, label in ROWS]}).encode(),
            {"field": "rows"},
        ),
    ],
)
def test_what_a_card_says_of_reading_is_obeyed(
    name: str, content: bytes, parameters: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Rows are those of `datasets`, and of each command that reads texts."""
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / name).write_bytes(content)
    card = {"configs": [{"config_name": "default", "data_files": name, **parameters}]}
    (folder / "README.md").write_text(f"---\n{json.dumps(card)}\n---\n")
    manifest = prepared(folder, tmp_path, tokenizer=str(byt5(tmp_path / "byt5")))
    assert sorted(pairs(tmp_path / "out")) == sorted(ROWS)
    assert ("dataset card: --" in capsys.readouterr().err) == (name != "data.tsv")
    assert prepared(folder, tmp_path, tokenizer=str(tmp_path / "byt5"), overwrite=True) == manifest
    assert list(columns.texts(sources.resolve(str(folder)))) == [text for text, _ in ROWS]
    import datasets

    read = datasets.load_dataset(str(folder), split="train", cache_dir=str(tmp_path / "cache"))
    assert [(row["text"], row["label"]) for row in read] == ROWS


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("a.txt", {"sep": ";"}),
        ("a.jsonl", {"escapechar": "\\"}),
        ("a.jsonl", {"names": ["a", "b"]}),
        ("a.csv", {"field": "rows"}),
    ],
)
def test_an_option_of_a_card_that_concerns_no_file(name: str, parameters: dict[str, Any], tmp_path: Path) -> None:
    """The user typed no option, so the error names the card's."""
    card = {"configs": [{"config_name": "default", "data_files": name, **parameters}]}
    folder = folder_of(tmp_path, {name: "text\na\n", "README.md": f"---\n{json.dumps(card)}\n---\n"})
    with raises(SourceError, "source.invalid-card", *parameters, formats.detect(name).kind) as raised:
        prepared(folder, tmp_path)
    assert "--delimiter" not in str(raised.value)


@pytest.mark.parametrize("options", [FileOptions(encoding="cp1252"), RowFileOptions(encoding="utf-8")])
def test_an_encoding_is_refused_if_all_files_are_parquet(options: FileOptions, tmp_path: Path) -> None:
    source = sources.resolve(str(folder_of(tmp_path, {"a.parquet": "a"})))
    with raises(UsageError, "option.inapplicable", f"--encoding {options.encoding}"):
        formats.with_card(options, source)
    source = sources.resolve(str(folder_of(tmp_path, {"a.csv": "a"})))
    assert formats.with_card(options, source) == options


def test_an_option_counts_more_than_a_card(tmp_path: Path) -> None:
    card = {"configs": [{"config_name": "default", "data_files": "*.csv", "sep": ";"}]}
    folder = folder_of(tmp_path, {"a.csv": WRITTEN, "README.md": f"---\n{json.dumps(card)}\n---\n"})
    manifest = prepared(folder, tmp_path, delimiter="|", columns="text,label")
    assert (manifest.settings.delimiter, manifest.rows["a.csv"].read) == ("|", 6)


@pytest.mark.parametrize("location", ["hub", "folder", "archive"])
def test_files_that_are_set_aside_are_not_read(location: str, internet: Internet, tmp_path: Path) -> None:
    """`datasets` passes over hidden files, `__pycache__` and its own descriptions, also where a card's glob matches them."""
    ignored_files = [".a.csv", ".git/a.csv", "__pycache__/a.csv", "x/__old/a.csv", "config.json", "dataset_dict.json"]
    files = {name: table(name) for name in ("a.csv", "x/_b.csv", "__c.csv", *ignored_files)}
    card = {"configs": [{"config_name": "default", "data_files": "**"}]}
    if location == "hub":
        source = internet.hub.publish("me/aside", {name: text.encode() for name, text in files.items()}, card=card)
    elif location == "folder":
        source = str(folder_of(tmp_path, {**files, "README.md": f"---\n{json.dumps(card)}\n---\n"}))
    else:
        source = str(tmp_path / "a.zip")
        with zipfile.ZipFile(source, "w") as archive:
            for name, text in files.items():
                archive.writestr(name, text)
    manifest = prepared(source, tmp_path)
    assert [name.removeprefix("a.zip/") for name in sorted(manifest.rows)] == ["__c.csv", "a.csv", "x/_b.csv"]


def test_class_names_are_those_of_the_config_that_is_read(internet: Internet, tmp_path: Path) -> None:
    def info(config: str, *names: str) -> dict[str, Any]:
        numbered = {str(number): name for number, name in enumerate(names)}
        return {"config_name": config, "features": [{"name": "label", "dtype": {"class_label": {"names": numbered}}}]}

    rows = b"text,label\n" + b"".join(b"row %d,%d\n" % (row, row % 2) for row in range(20))
    configs = [
        {"config_name": "topics", "data_files": "a/*.csv"},
        {"config_name": "mood", "data_files": "b/*.csv", "default": True},
    ]
    card = {"configs": configs, "dataset_info": [info("topics", "sport", "law"), info("mood", "bad", "good")]}
    source = internet.hub.publish("me/two", {"a/x.csv": rows, "b/x.csv": rows}, card=card)
    assert prepared(source, tmp_path).settings.options["label_map"] == "0=bad,1=good"
    manifest = prepared(f"{source}#topics", tmp_path, overwrite=True)
    assert manifest.settings.options["label_map"] == "0=sport,1=law"
    unnamed = {"features": info("", "bad", "good")["features"]}
    source = internet.hub.publish("me/one", {"x.csv": rows}, card={"dataset_info": unnamed})
    manifest = prepared(f"{source}#default", tmp_path, overwrite=True)
    assert manifest.settings.options["label_map"] == "0=bad,1=good"


def legacy_infos(**names_of: list[str]) -> bytes:
    """Write a dataset_infos.json as old versions of `datasets` do: the class names of each config."""
    infos = {}
    for config, names in names_of.items():
        label = {"num_classes": len(names), "names": names, "id": None, "_type": "ClassLabel"}
        text = {"dtype": "string", "id": None, "_type": "Value"}
        infos[config] = {"description": "", "citation": "", "features": {"text": text, "label": label}}
    return json.dumps(infos).encode()


LABEL_FEATURES = [{"name": "label", "dtype": {"class_label": {"names": {"0": "no", "1": "yes"}}}}]


@pytest.mark.extra("datasets")
@pytest.mark.parametrize("location", ["hub", "folder"])
@pytest.mark.parametrize(
    ("infos", "card", "expected"),
    [
        ({"me--news": ["bad", "good"]}, {}, "0=bad,1=good"),  # the only config is the default one
        (
            {"one": ["a", "b"], "default": ["bad", "good"]},
            {"configs": [{"config_name": "default", "data_files": "*.csv"}]},
            "0=bad,1=good",
        ),
        ({"one": ["a", "b"], "two": ["bad", "good"]}, {}, ""),
        ({"me--news": ["a", "b"]}, {"dataset_info": {"features": LABEL_FEATURES}}, "0=no,1=yes"),  # the card says more
        (
            {"one": ["a", "b"], "two": ["bad", "good"]},
            {"configs": [{"config_name": "two", "data_files": "*.csv"}]},
            "0=bad,1=good",
        ),
    ],
)
def test_class_names_of_a_legacy_file_are_those_that_datasets_gives(
    location: str, infos: dict[str, list[str]], card: dict[str, Any], expected: str, internet: Internet, tmp_path: Path
) -> None:
    rows = "text,label\n" + "".join(f"row {row},{row % 2}\n" for row in range(20))
    files = {"x.csv": rows.encode(), "dataset_infos.json": legacy_infos(**infos)}
    folder = tmp_path / "news"
    folder.mkdir()
    for name, content in {**files, "README.md": f"---\n{json.dumps(card)}\n---\n".encode()}.items():
        (folder / name).write_bytes(content)
    source = internet.hub.publish("me/news", files, card=card) if location == "hub" else str(folder)
    assert prepared(source, tmp_path / "out").settings.options["label_map"] == expected
    import datasets

    feature = datasets.load_dataset_builder(str(folder), cache_dir=str(tmp_path / "cache")).info.features
    names = feature["label"].names if feature else []
    assert ",".join(f"{number}={name}" for number, name in enumerate(names)) == expected


def test_a_legacy_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("text,label\na,0\n")
    (tmp_path / "dataset_infos.json").write_text("[]")
    with raises(SourceError, "source.invalid-card", "dataset_infos.json"):
        prepared(str(tmp_path), tmp_path / "out")


@pytest.mark.parametrize(
    ("names", "choices", "is_warned"),
    [
        (("train.csv", "test.csv"), {}, True),
        (("train.csv", "test.csv"), {"held_out": 0.5}, False),
        (("train.csv", "dev.csv"), {}, False),
        (("train.csv",), {}, False),
        (("a.csv",), {"split_files": "train=a.csv"}, True),
    ],
)
def test_that_no_split_is_validation_is_said(
    names: tuple[str, ...], choices: dict[str, Any], is_warned: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = prepared(folder_of(tmp_path, {name: table(name) for name in names}), tmp_path, **choices)
    message = capsys.readouterr().err
    assert ("--held-out 0.05" in message) == is_warned
    assert not (is_warned and "validation" in manifest.splits)


def read_by(source: Path, split: str = "", otherwise: str = source_files.TRAINING) -> tuple[set[str], str]:
    """Return the files that a command reads which makes no dataset, and what it says."""
    selected = source_files.select_split(sources.resolve(str(source)), split, otherwise=otherwise)
    return {file.name for file in selected.source.files}, " ".join(selected.messages)


def test_commands_that_make_no_dataset_read_the_splits_that_prepare_sees(tmp_path: Path) -> None:
    names = ("train.csv", "train.jsonl", "test.csv", "dev.csv", "notes.csv", "README.md")
    source = folder_of(tmp_path, {name: table(name) for name in names})
    read, message = read_by(source)
    assert read == {"train.jsonl"}
    for part in ("README.md", "train.csv", "notes.csv", ", not test, validation"):
        assert part in message
    assert read_by(source, "test")[0] == {"test.csv"}
    read, message = read_by(source, otherwise=source_files.EVALUATION)
    assert read == {"dev.csv", "test.csv"}
    assert "--split" not in message.partition("--skip-files")[2]
    for choice in (("all", source_files.TRAINING), ("", source_files.ALL)):
        read, message = read_by(source, *choice)
        assert read == {"dev.csv", "notes.csv", "test.csv", "train.jsonl"}
    assert "the splits test, train, validation" in message
    with raises(UsageError, "split.unknown", "gold"):
        read_by(source, "gold")
    assert read_by(source / "train.csv") == ({"train.csv"}, "")


def test_every_file_can_be_read_where_names_tell_splits_twice(tmp_path: Path) -> None:
    source = folder_of(tmp_path, {"train/a.csv": table("a"), "test.csv": table("b")})
    with raises(SourceError, "split.ambiguous"):
        read_by(source)
    assert read_by(source, "all")[0] == {"train/a.csv", "test.csv"}


def test_the_reason_for_a_format_is_the_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = "".join(json.dumps({"text": f"row {row}", "label": "good"}) + "\n" for row in range(30))
    source = folder_of(tmp_path, {"a.csv": table("a"), "a.jsonl": lines})
    prepared(source, tmp_path)
    assert "many files have it: a.csv" in capsys.readouterr().err
    (source / "b.csv").write_text(table("b"))
    prepared(source, tmp_path, overwrite=True)
    assert "most of its files are csv: a.jsonl" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["document", "text", ""])
def test_documents_about_a_corpus_are_no_rows_of_it(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    about = ("README.md", "LICENSE", "neg/README", "dataset_dict.json")
    texts = {
        f"{folder}/{n}.{'md' if kind else 'txt'}": f"{folder} text {n}" for folder in ("pos", "neg") for n in range(9)
    }
    source = folder_of(tmp_path, {**texts, **dict.fromkeys(about, "about the data")})
    choices = {"targets_column": "folder"} if kind == "document" else {"targets_column": "text"}
    manifest = prepared(source, tmp_path, format=kind, **choices)
    assert {file.name for file in manifest.source.files} == set(texts)
    message = capsys.readouterr().err
    assert "README.md" in message
    assert "LICENSE" in message


def test_a_folder_that_datasets_saved_is_a_sentence(tmp_path: Path) -> None:
    """Its Arrow files cannot be read, whatever lies beside them."""
    names = ("dataset_dict.json", "train/state.json", "train/dataset_info.json", "train/data-00000-of-00001.arrow")
    folder = folder_of(tmp_path, dict.fromkeys(names, '{"a": 1}\n'))
    with raises(UsageError, "file.unsupported-format", "00001.arrow"):
        prepared(folder, tmp_path)
