"""Objects of Google Cloud Storage, through the real client, from an emulator."""

import gzip

import pytest
from servers.internet import Internet
from servers.kaggle import zip_of

from t5prep.errors import SourceError
from t5prep.sources import open_random, open_stream, resolve


@pytest.fixture
def bucket(internet: Internet) -> str:
    internet.bucket.objects = {
        "corpora/a/train.csv": b"1",
        "corpora/a/valid.csv.gz": gzip.compress(b"2"),
        "corpora/a/sub/test.csv": b"3",
        "corpora/a.zip": zip_of({"in/x.csv": b"4"}),
        "corpora/ab.csv": b"no",
    }
    return "gs://corpora"


@pytest.mark.parametrize(
    ("place", "names"),
    [
        ("/a", ["sub/test.csv", "train.csv", "valid.csv.gz"]),
        ("/a/", ["sub/test.csv", "train.csv", "valid.csv.gz"]),
        ("/a/*.csv", ["train.csv"]),
        ("/a/**/*.csv", ["sub/test.csv", "train.csv"]),
        ("/a/train.csv", ["train.csv"]),
        ("/a.zip", ["a.zip/in/x.csv"]),
        ("", ["a.zip/in/x.csv", "a/sub/test.csv", "a/train.csv", "a/valid.csv.gz", "ab.csv"]),
    ],
)
def test_objects_are_named_as_files_are(place: str, names: list[str], bucket: str):
    assert [file.name for file in resolve(bucket + place).files] == names


def test_objects_are_read_where_they_are(bucket: str, internet: Internet):
    found = {file.name: open_stream(file).read() for file in resolve(f"{bucket}/a").files}
    assert found == {"sub/test.csv": b"3", "train.csv": b"1", "valid.csv.gz": b"2"}
    (zipped,) = resolve(f"{bucket}/a.zip").files
    assert open_stream(zipped).read() == b"4"
    (train,) = resolve(f"{bucket}/a/train.csv").files
    assert train.path == "gs://corpora/a/train.csv#5"
    assert train.checksum == "md5:c4ca4238a0b923820dcc509a6f75849b"
    assert open_random(train).read() == b"1"


def test_what_is_not_there_is_said(bucket: str, internet: Internet):
    (train,) = resolve(f"{bucket}/a/train.csv").files
    del internet.bucket.objects["corpora/a/train.csv"]
    with pytest.raises(SourceError, match="does not exist"):
        open_stream(train)
    with pytest.raises(SourceError, match="no file"):
        resolve(f"{bucket}/b")
