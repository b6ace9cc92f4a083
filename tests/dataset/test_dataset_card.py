"""The card of a dataset says what its manifest says, and goes with it to the Hub."""

import dataclasses
import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml as YAML
from click.testing import CliRunner
from raised import assert_error, refused
from servers.writable_hub import WritableHub, writable_hub  # noqa: F401 - a fixture
from small_corpora import bytes_of, prepared, questions, write_csv

import t5prep
from t5prep.cli import main
from t5prep.dataset import dataset_card, manifest, record_table, upload


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = questions(60)
    rows[7]["Body"] = rows[7]["Title"] = ""
    write_csv(tmp_path / "rows.csv", rows)
    prepared(tmp_path / "rows.csv", tmp_path / "data", tokenizer="sample:", input_length=64, layout="ragged")
    return tmp_path / "data"


def test_the_card_has_the_header_that_the_hub_reads(data: Path) -> None:
    from huggingface_hub import DatasetCard

    dataset_manifest = manifest.load(data)
    text = dataset_card.text(dataset_manifest)
    header = DatasetCard(text).data.to_dict()
    assert header["task_categories"] == ["text-classification"]
    assert header["size_categories"] == ["n<1K"]
    (configuration,) = header["configs"]
    assert configuration["data_files"] == [
        {"split": name, "path": f"table/{name}.parquet"} for name in ("train", "validation")
    ]
    assert "| 60 | 59 | 1 | 0 | 0 |" in text
    assert "| empty text | 1 |" in text
    assert f"`{dataset_manifest.tokenizer.sha256}`" in text
    assert str(data.parent) not in text, "no folder of this machine"
    assert "--input-length 64 " in text


@pytest.mark.parametrize(("licence", "expected"), [("mit", "mit"), ("", ""), ("see Kaggle", "other")])
def test_a_licence_is_the_hubs_name_of_it_or_other(data: Path, licence: str, expected: str) -> None:
    dataset_manifest = manifest.load(data)
    text = dataset_card.text(
        manifest.Manifest(**{**vars(dataset_manifest), "source": manifest.Source("a", "1", [], licence, "")})
    )
    header = YAML.safe_load(text.split("---")[1])
    assert header.get("license", "") == expected
    assert header.get("license_name", "") == (licence if expected == "other" else "")


def test_a_card_of_push_is_removed_with_its_dataset_and_a_readme_of_the_user_stays(
    data: Path,
    tmp_path: Path,
    writable_hub: type[WritableHub],  # noqa: F811
) -> None:
    original_files = bytes_of(data)
    upload.push(str(data), repo="me/questions")
    assert dataset_card.is_ours((data / dataset_card.NAME).read_bytes())
    shutil.rmtree(data / "table")
    choices = {"tokenizer": "sample:", "input_length": 64, "layout": "ragged"}
    prepared(tmp_path / "rows.csv", data, **choices, fresh=True)
    assert bytes_of(data) == original_files
    (data / dataset_card.NAME).write_text("# Mine\n")
    prepared(tmp_path / "rows.csv", data, **choices, fresh=True)
    upload.push(str(data), repo="me/questions")
    assert (data / dataset_card.NAME).read_text() == "# Mine\n"


def test_push_publishes_a_dataset_in_one_commit(data: Path, writable_hub: type[WritableHub]) -> None:  # noqa: F811
    (data / "notes.txt").write_text("mine")
    result = CliRunner().invoke(main, ["push", "--data", str(data), "--repo", "me/questions", "--private"])
    assert result.exit_code == 0, result.output
    created = json.loads(writable_hub.requests[0][1])
    assert (created["type"], created["visibility"]) == ("dataset", "private")
    (commit,) = (body for path, body in writable_hub.requests if "/api/datasets/" in path and "/commit/" in path)
    sent = {json.loads(line)["value"]["path"] for line in commit.splitlines() if json.loads(line)["key"] == "file"}
    assert sent == {str(path.relative_to(data)) for path in data.rglob("*") if path.is_file()} - {"notes.txt"}
    assert {"table/train.parquet", "table/validation.parquet"} < sent
    group = pq.ParquetFile(data / "table/train.parquet").metadata.row_group(0)
    assert {group.column(number).compression for number in range(group.num_columns)} == {"ZSTD"}


@pytest.mark.extra("datasets")
@pytest.mark.parametrize("streaming", [False, True])
def test_datasets_loads_what_the_card_names(data: Path, tmp_path: Path, streaming: bool) -> None:
    import datasets

    # Names of splits that are the Hub's too, and such that it does not take.
    odd = {"all": "all_", "of-2": "of_2_", "of-2-": "of_2__", "of_2": "of_2", "small": "small"}
    for folder, names in ((data, ("train", "validation")), (tmp_path / "odd", tuple(odd))):
        if folder != data:
            splits = dict.fromkeys(odd, 0.2)
            prepared(tmp_path / "rows.csv", folder, tokenizer="sample:", input_length=64, splits=splits)
        for split in names:
            record_table.write(
                t5prep.table(folder, splits=[split]), folder / dataset_card.table_of(split), compression="zstd"
            )
        (folder / dataset_card.NAME).write_text(dataset_card.text(manifest.load(folder)))
        loaded = datasets.load_dataset(str(folder), cache_dir=str(tmp_path / "cache"), streaming=streaming)
        for split, rows in zip(names, loaded.values(), strict=True):
            assert list(rows) == t5prep.table(folder, splits=[split]).read_all().to_pylist()
        assert list(loaded) == [odd.get(name, name) for name in names]


def test_what_is_no_whole_dataset_is_not_published(data: Path, writable_hub: type[WritableHub]) -> None:  # noqa: F811
    shard = next(data.glob("train.*"))
    shard.write_bytes(shard.read_bytes()[:-1])
    refused("dataset.altered", shard.name, command=("push", "--data", data, "--repo", "me/questions"))
    assert writable_hub.requests == []
    for line in (["--repo", "a/b"], ["--repo", "a/b", "--data", "x", "--model", "y"]):
        result = CliRunner().invoke(main, ["push", *line])
        assert result.exit_code == 2
        assert_error(result.stderr, "option.missing", "--data FOLDER")


def test_what_strangers_wrote_is_shown_by_the_card_as_it_stands(data: Path) -> None:
    """Names of files, licences, labels and warnings are no Markdown, no HTML and no second line."""
    nasty = "a`<img src=x>`\n# [b](http://c)|.csv"
    dataset_manifest = manifest.load(data)
    dataset_manifest = dataclasses.replace(
        dataset_manifest,
        source=manifest.Source(f"/home/me/{nasty}", nasty, [manifest.SourceFile(nasty, 1, "")], nasty, nasty),
        task=dataclasses.replace(dataset_manifest.task, classes=[nasty]),
        tokenizer=dataclasses.replace(dataset_manifest.tokenizer, name=f"/home/me/{nasty}", sha256=nasty),
        settings=dataclasses.replace(dataset_manifest.settings, task=nasty, filter=(f"words:{nasty}",)),
        rejected={nasty: 1},
        warnings=[nasty],
    )
    body = dataset_card.text(dataset_manifest).split(dataset_card.MARK)[1]
    assert body.count("&#60;img src=x&#62;") == 12
    assert not {"<img", "](http", "\n# ["} & {part for part in ("<img", "](http", "\n# [") if part in body}
