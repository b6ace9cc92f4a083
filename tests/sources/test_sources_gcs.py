"""Objects of Google Cloud Storage, through the real client, from an emulator."""

import gzip

import pytest
from raised import raises
from servers.gcs_emulator import upload_objects
from servers.kaggle import zip_of

from t5prep.errors import SourceError
from t5prep.io import gcs
from t5prep.sources import open_random, open_stream, resolve

pytestmark = pytest.mark.extra("fake-gcs-server")


@pytest.fixture
def corpora(bucket: str) -> str:
    objects = {
        "a/train.csv": b"1",
        "a/valid.csv.gz": gzip.compress(b"2"),
        "a/sub/test.csv": b"3",
        "a.zip": zip_of({"in/x.csv": b"4"}),
        "ab.csv": b"no",
    }
    upload_objects(bucket, objects)
    return bucket


@pytest.mark.parametrize(
    ("path", "names"),
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
def test_objects_are_named_as_files_are(path: str, names: list[str], corpora: str):
    assert [file.name for file in resolve(corpora + path).files] == names


def test_objects_are_read_where_they_are(corpora: str):
    bodies = {file.name: open_stream(file).read() for file in resolve(f"{corpora}/a").files}
    assert bodies == {"sub/test.csv": b"3", "train.csv": b"1", "valid.csv.gz": b"2"}
    (zipped,) = resolve(f"{corpora}/a.zip").files
    assert open_stream(zipped).read() == b"4"
    (train,) = resolve(f"{corpora}/a/train.csv").files
    generation = gcs.objects(f"{corpora}/a/")["train.csv"].generation
    assert train.path == f"{corpora}/a/train.csv#{generation}"
    assert train.checksum == "md5:c4ca4238a0b923820dcc509a6f75849b"
    assert open_random(train).read() == b"1"


def test_what_is_not_there_is_said(corpora: str):
    (train,) = resolve(f"{corpora}/a/train.csv").files
    gcs.delete(f"{corpora}/a/train.csv", generation=int(train.path.partition("#")[2]))
    with raises(SourceError, "source.not-found"):
        open_stream(train)
    with raises(SourceError, "source.files-missing", f"{corpora}/b"):
        resolve(f"{corpora}/b")
