"""Preparing straight into a bucket: the same bytes as in a directory, all of it or nothing."""

import pytest
from raised import raises
from servers.gcs_emulator import every, once_each, upload_objects
from small_corpora import bytes_of, prepared

from t5prep.dataset import manifest
from t5prep.dataset.verify import verify
from t5prep.errors import OutputError
from t5prep.io import gcs, paths
from t5prep.io.gcs import MARKER

pytestmark = pytest.mark.extra("fake-gcs-server")

CHOICES = {"tokenizer": "sample:", "shards": 3}


@pytest.fixture
def source(tmp_path):
    """150 questions, one of them without a text."""
    rows = [
        f"{n},how to {n},{'x ' * (n % 40) if n else ''},,,{('HQ', 'LQ_EDIT', 'LQ_CLOSE')[n % 3]}" for n in range(150)
    ]
    (tmp_path / "train.csv").write_text("\n".join(["Id,Title,Body,Tags,CreationDate,Y", *rows]) + "\n")
    return tmp_path / "train.csv"


def read_objects(uri):
    return {name: gcs.read(f"{uri}/{name}") for name in gcs.objects(uri)}


def test_a_bucket_gets_the_bytes_that_a_directory_gets(source, bucket, front, tmp_path):
    dataset_manifest = prepared(source, tmp_path / "data", **CHOICES)
    uri = f"{bucket}/data"
    assert prepared(source, uri, workers=2, **CHOICES) == dataset_manifest
    assert read_objects(uri) == bytes_of(tmp_path / "data")
    assert gcs.objects(f"{uri}/.unfinished-spool") == {}
    assert verify(uri) == dataset_manifest
    written = [name.removeprefix("data/") for name in front.written_names()]
    assert written[0] == MARKER
    assert written[-1] == manifest.NAME
    # The same again, with fewer shards: the ones that are left over go.
    prepared(source, uri, **CHOICES | {"shards": 2})
    assert len([name for name in gcs.objects(uri) if name.startswith("train.tfrecord")]) == 2
    verify(uri)
    with raises(OutputError, "output.different-settings"):
        prepared(source, uri, **CHOICES | {"seed": 1})


@pytest.mark.extra("prism")
def test_an_engine_writes_the_same_into_a_bucket(source, bucket, front, tmp_path):
    """Flink does in tests/pipelines/test_task_managers.py, where it loses one meanwhile."""
    dataset_manifest = prepared(source, tmp_path / "data", **CHOICES)
    uri = f"{bucket}/data"
    assert prepared(source, uri, runner="prism", workers=2, **CHOICES) == dataset_manifest
    assert read_objects(uri) == bytes_of(tmp_path / "data")
    assert front.written_names()[-1] == f"data/{manifest.NAME}"


def test_a_run_that_fails_leaves_no_manifest_and_is_taken_up_again(source, bucket, front):
    uri = f"{bucket}/data"
    front.fault = lambda request: (
        "403" if request.kind in ("multipart", "begin") and len(front.written_names()) > 4 else ""
    )
    with raises(OutputError, "bucket.missing-permission"):
        prepared(source, uri, **CHOICES)
    front.fault = lambda request: ""
    assert manifest.NAME not in gcs.objects(uri)
    with raises(OutputError, "output.locked"):
        prepared(source, uri, **CHOICES | {"seed": 1})
    dataset_manifest = prepared(source, uri, **CHOICES)
    assert verify(uri) == dataset_manifest
    assert MARKER not in gcs.objects(uri)


def test_somebody_elses_objects_are_left_alone(source, bucket, front):
    gcs.write(f"{bucket}/data/thesis.doc", b"mine")
    with raises(OutputError, "output.foreign-file"):
        prepared(source, f"{bucket}/data", **CHOICES)
    assert read_objects(f"{bucket}/data") == {"thesis.doc": b"mine"}
    with raises(OutputError, "bucket.not-found"):
        prepared(source, "gs://there-is-none-of-this-name/data", **CHOICES)


def test_one_in_ten_requests_fails_and_the_bytes_are_the_same(source, bucket, front, tmp_path):
    front.fault = every(10, "503", "429")
    prepared(source, f"{bucket}/data", **CHOICES)
    front.fault = lambda request: ""
    prepared(source, tmp_path / "data", **CHOICES)
    assert read_objects(f"{bucket}/data") == bytes_of(tmp_path / "data")


@pytest.mark.extra("prism")
def test_an_engine_that_failed_goes_on_in_a_bucket_with_what_it_had_made(source, bucket, front, tmp_path, capsys):
    uri = f"{bucket}/data"
    # What is written after the origins is the manifest.
    front.fault = lambda request: (
        "403" if request.kind == "multipart" and front.written_names()[-1:] == ["data/shards.origins"] else ""
    )
    with raises(OutputError, "bucket.missing-permission"):
        prepared(source, uri, runner="prism", **CHOICES)
    front.fault = lambda request: ""
    written_count = len(front.written_names())
    prepared(source, uri, runner="prism", **CHOICES)
    assert not [name for name in front.written_names()[written_count:] if ".tfrecord-" in name]
    assert "--fresh" in capsys.readouterr().err
    prepared(source, tmp_path / "data", **CHOICES)
    assert read_objects(uri) == bytes_of(tmp_path / "data")
    assert not gcs.listed(f"{uri}/.unfinished-")


@pytest.mark.parametrize("size", [100, 9 << 20])
def test_a_write_that_was_damaged_on_its_way_is_sent_again(bucket, front, size):
    name = f"{bucket}/kept"
    struck: set[str] = set()
    front.fault = once_each("multipart" if size < 8 << 20 else "put", "400", struck)
    content = bytes(range(100)) * (size // 100)
    with paths.scratch(name) as file:
        file.write(content)
    assert struck
    assert gcs.read(name) == content


def test_very_many_objects_are_removed_a_page_after_the_other(bucket, front, monkeypatch):
    upload_objects(bucket, {f"kept/{number}": b"rows" for number in range(5)} | {"keep": b""})
    monkeypatch.setattr(gcs, "_PAGE", 2)
    front.requests.clear()
    gcs.delete_all(f"{bucket}/kept/")
    methods = [request.method for request in front.requests]
    assert methods == ["GET", "DELETE", "DELETE", "GET", "DELETE", "DELETE", "GET", "DELETE"]
    assert set(gcs.objects(bucket)) == {"keep"}
