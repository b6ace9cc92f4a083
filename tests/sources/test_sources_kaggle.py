"""Kaggle datasets, from hosts that speak its API and its storage."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from raised import raises
from servers.http import Answer, Fault
from servers.internet import Internet

from t5prep.errors import SourceError
from t5prep.sources import open_stream, resolve

FILES = {"train.csv": b"Id,Y\n" + b"1,HQ\n" * 50_000, "valid.csv": b"Id,Y\n2,HQ\n"}
NAME = "imoore/60k-stack-overflow-questions-with-quality-rate"


@pytest.fixture
def dataset(internet: Internet) -> str:
    return internet.kaggle.publish(NAME, FILES, version=9)


def test_a_public_dataset_needs_no_account(internet: Internet, dataset: str):
    resolved = resolve(dataset)
    assert {file.name: open_stream(file).read() for file in resolved.files} == FILES
    assert resolved.revision == "version 9"
    assert resolved.licence == "CC BY-SA 4.0"
    assert resolved.citation == f"Jane Doe. Questions (version 9). Kaggle. https://www.kaggle.com/datasets/{NAME}"
    assert all("authorization" not in request.headers for request in internet.server.requests)


def test_a_version_and_one_file(internet: Internet, dataset: str):
    internet.kaggle.publish(NAME, {"train.csv": b"newer"}, version=10)
    (file,) = resolve(f"{dataset}@9#valid.csv").files
    assert (file.name, open_stream(file).read()) == ("valid.csv", FILES["valid.csv"])
    assert file.checksum.startswith("md5:")
    with raises(SourceError, "kaggle.not-found", "10"):
        resolve(f"{dataset}@11")


def test_one_file_that_arrives_as_a_zip(internet: Internet):
    dataset = internet.kaggle.publish("a/b", FILES, zipped="train.csv")
    (file,) = resolve(f"{dataset}#train.csv").files
    assert (file.name, open_stream(file).read()) == ("train.csv", FILES["train.csv"])


def test_the_second_time_nothing_is_downloaded(internet: Internet, dataset: str):
    resolve(dataset)
    request_count = len(internet.server.requests_of("storage.googleapis.com"))
    assert len(resolve(dataset).files) == 2
    assert len(internet.server.requests_of("storage.googleapis.com")) == request_count + 1  # a look at what it is now


@pytest.mark.parametrize(
    "location", ["KAGGLE_API_TOKEN", ".kaggle/access_token", "KAGGLE_USERNAME", ".kaggle/kaggle.json"]
)
def test_a_private_dataset_and_every_place_for_credentials(
    location: str, internet: Internet, monkeypatch: pytest.MonkeyPatch
):
    dataset = internet.kaggle.publish("jane/mine", FILES, private=True)
    with raises(SourceError, "kaggle.missing-credentials", "KAGGLE_API_TOKEN"):
        resolve(dataset)
    user, _, key = internet.kaggle.basic.partition(":")
    home = Path(internet.environment["HOME"])
    (home / ".kaggle").mkdir()
    if location.endswith("access_token"):
        (home / location).write_text(internet.kaggle.token)
    elif location.endswith("json"):
        (home / location).write_text(json.dumps({"username": user, "key": key}))
    elif location == "KAGGLE_USERNAME":
        monkeypatch.setenv("KAGGLE_USERNAME", user)
        monkeypatch.setenv("KAGGLE_KEY", key)
    else:
        monkeypatch.setenv(location, internet.kaggle.token)
    assert len(resolve(dataset).files) == 2
    assert all(
        "authorization" not in request.headers for request in internet.server.requests_of("storage.googleapis.com")
    )


@pytest.mark.parametrize(
    ("token", "name", "says"),
    [
        ("wrong", NAME, ("kaggle.invalid-credentials",)),
        ("", "no/such", ("kaggle.missing-credentials",)),
        ("right", "no/such", ("kaggle.not-found",)),
    ],
)
def test_refusals_say_where_the_credential_goes(
    token: str, name: str, says: tuple[str, ...], internet: Internet, dataset: str, monkeypatch: pytest.MonkeyPatch
):
    if token:
        monkeypatch.setenv("KAGGLE_API_TOKEN", internet.kaggle.token if token == "right" else "KGAT_wrong")
    with raises(SourceError, *says):
        resolve(f"kaggle:{name}")


def test_a_credentials_file_that_is_broken_is_named(internet: Internet, dataset: str):
    folder = Path(internet.environment["HOME"]) / ".kaggle"
    folder.mkdir()
    (folder / "kaggle.json").write_text('{"username": "jane", "key": "0123456789abc')
    with raises(SourceError, "kaggle.invalid-credentials", "kaggle.json") as error:
        resolve(dataset)
    assert "0123456789abc" not in str(error.value)


def test_faults_of_the_api_and_of_the_storage_pass(internet: Internet, dataset: str):
    busy = Answer(429, {"Retry-After": "0"})
    internet.server.faults = [
        Fault("GetDataset", method="POST", answer=busy),
        Fault("DownloadDataset", method="POST", answer=Answer(503)),
        Fault("archive.zip", answer=Answer(503)),
        Fault("archive.zip", cut=0),
        Fault("archive.zip", cut=100),
        Fault("archive.zip", cut=50),
    ]
    assert len(resolve(dataset).files) == 2
    assert all(not fault.times for fault in internet.server.faults)


def test_a_wrong_md5_is_deleted_and_said(internet: Internet, dataset: str):
    internet.server.faults = [Fault("valid.csv"), Fault("valid.csv", spoil=True, times=9)]
    sound = internet.kaggle.storage

    def storage(request):
        answer = sound(request)
        answer.headers["x-goog-hash"] = "crc32c=n03x6A==,md5=AAAAAAAAAAAAAAAAAAAAAA=="
        return answer

    internet.server.apps["storage.googleapis.com"] = storage
    with raises(SourceError, "source.damaged-download", str("0" * 32)):
        resolve(f"{dataset}#valid.csv")


def test_a_sign_in_page_is_not_a_dataset(internet: Internet, dataset: str):
    page = Answer(headers={"Content-Type": "text/html"}, body=b"<html>Sign in to the hotel's network</html>")
    internet.server.faults = [Fault("GetDataset", method="POST", answer=page)]
    with raises(SourceError, "source.invalid-response"):
        resolve(dataset)


@pytest.mark.slow
def test_two_processes_may_fetch_the_same_dataset_at_once(internet: Internet, dataset: str):
    script = f"from t5prep.sources import resolve; print([file.bytes for file in resolve({dataset!r}).files])"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    both = [subprocess.Popen([sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE) for _ in "ab"]
    outputs = {process.communicate(timeout=600)[0] for process in both}
    assert [process.returncode for process in both] == [0, 0]
    assert outputs == {f"{[len(body) for body in FILES.values()]}\n".encode()}


def test_a_file_has_the_same_name_alone_zipped_and_in_the_whole(internet: Internet):
    files = {"in/a.csv": b"1\n"}
    source = internet.kaggle.publish("a/b", files)
    zipped = internet.kaggle.publish("a/c", files, zipped="in/a.csv")
    for uri in (source, f"{source}#in/a.csv", f"{zipped}#in/a.csv"):
        assert [file.name for file in resolve(uri).files] == ["in/a.csv"]
