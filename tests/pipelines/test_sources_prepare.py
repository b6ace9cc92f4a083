"""From every kind of source to shards: the same files give the same bytes, wherever they are read from."""

import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from servers.gcs_emulator import upload_objects
from servers.internet import Internet
from servers.kaggle import zip_of

from t5prep import cli

CLASSES = ("LQ_CLOSE", "LQ_EDIT", "HQ")


def csv(rows: int, first: int) -> bytes:
    lines = [f"{i},How to sort {i} things?,I tried {i} ways.,{CLASSES[i % 3]}" for i in range(first, first + rows)]
    return "\n".join(["Id,Title,Body,Y", *lines, ""]).encode()


def parquet(rows: int, first: int) -> bytes:
    table = pa.table({"q": [f"how many are {i}" for i in range(first, first + rows)], "a": ["many"] * rows})
    buffer = io.BytesIO()
    pq.write_table(table, buffer, row_group_size=40)
    return buffer.getvalue()


CSV = {"train.csv": csv(90, 0), "valid.csv": csv(30, 90)}
PARQUET = {"data/train-00000.parquet": parquet(90, 0), "data/validation-00000.parquet": parquet(30, 90)}


def prepared(task: str, source: str | Path, out: Path, *options: str) -> dict:
    """The manifest of a dataset prepared by the command line."""
    arguments = [task, "--source", str(source), "--tokenizer", "sample:", "--out", str(out), "--workers", "1", "--json"]
    result = CliRunner().invoke(cli.main, ["prepare", *arguments, *options], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads((out / "manifest.json").read_text())


def shards(manifest: dict) -> dict[str, list[str]]:
    return {name: [shard["sha256"] for shard in split["shards"]] for name, split in manifest["splits"].items()}


def local(files: dict[str, bytes], folder: Path) -> Path:
    for name, body in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(body)
    return folder


def test_a_streamed_hub_corpus_gives_the_bytes_of_the_files_on_disk(
    internet: Internet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("t5prep.sources.hub.STREAM_BYTES", 0)
    source = internet.hub.publish("a/b", PARQUET, card={"license": "mit"})
    columns = ("--inputs-column", "q", "--targets-column", "a", "--fresh")
    far = prepared("text2text", source, tmp_path / "far", *columns)
    near = prepared("text2text", local(PARQUET, tmp_path / "files"), tmp_path / "near", *columns)
    assert shards(far) == shards(near)
    assert {name: split["records"] for name, split in far["splits"].items()} == {"train": 90, "validation": 30}
    assert far["source"]["licence"] == "mit"
    assert far["source"]["revision"] == internet.hub.sha("a/b")
    assert all("range" in request.headers for request in internet.server.requests_of("/lfs/"))


@pytest.mark.extra("fake-gcs-server")
@pytest.mark.slow
def test_every_source_gives_the_bytes_of_the_files_on_disk(internet: Internet, bucket: str, tmp_path: Path):
    upload_objects(bucket, {f"so/{name}": body for name, body in CSV.items()})
    sources = {
        "kaggle": internet.kaggle.publish("imoore/60k", CSV, version=3),
        "zenodo": internet.zenodo.publish(5, {"so.zip": zip_of(CSV)}),
        "hub": internet.hub.publish("a/so", CSV),
        "bucket": f"{bucket}/so",
        "web": internet.page("example.org/so.zip", zip_of(CSV)),
    }
    near = prepared("so_quality", local(CSV, tmp_path / "files"), tmp_path / "near", "--fresh")
    for name, source in sources.items():
        manifest = prepared("so_quality", source, tmp_path / name, "--fresh")
        assert shards(manifest) == shards(near), name
        assert manifest["source"]["uri"] == source
        assert bool(manifest["source"]["licence"]) == (name in ("kaggle", "zenodo"))


@pytest.mark.slow
def test_no_credential_comes_with_the_data(internet: Internet, tmp_path: Path):
    internet.page("example.org/so.zip", zip_of(CSV))
    source = "https://jane:planted0password@example.org/so.zip?token=planted0query"
    manifest = prepared("so_quality", source, tmp_path / "out")
    assert manifest["source"]["uri"] == "https://example.org/so.zip?token=…"
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or b"planted0" not in path.read_bytes(), path
