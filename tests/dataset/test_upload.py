"""Uploading through a bucket that misbehaves: nothing lost, nothing sent twice, the manifest last."""

import itertools
import json
import os
import random
import re
import subprocess
import sys
import threading
import time

import pytest
from raised import raises
from servers.gcs_emulator import every, once_each
from toy_dataset import write

from t5prep.dataset.upload import upload
from t5prep.errors import OutputError, T5prepError
from t5prep.io import gcs, uploads
from t5prep.io.gcs import MARKER

pytestmark = pytest.mark.extra("fake-gcs-server")


@pytest.fixture
def data(tmp_path):
    out = tmp_path / "data"
    write(out, {"train": [40, 50, 30, 20], "validation": [10]})
    (out / "rejected.jsonl").write_text('{"reason": "empty"}\n')
    return out


def read_bucket(bucket):
    """What is under a bucket's prefix, by name."""
    return {name: gcs.read(f"{bucket}/{name}") for name in gcs.objects(bucket)}


def local(data):
    return {path.name: path.read_bytes() for path in data.iterdir()}


def test_a_bucket_ends_byte_equal_with_the_manifest_last(data, bucket, front):
    result = upload(data, f"{bucket}/a/b")
    assert read_bucket(f"{bucket}/a/b") == local(data)
    names = [name.removeprefix("a/b/") for name in front.written_names()]
    assert names[0] == MARKER
    assert names[-1] == "manifest.json"
    assert sorted(result.sent) == sorted(local(data))
    assert (result.skipped, result.deleted, result.stale) == ([], [], [])


def test_what_is_there_is_not_sent_again(data, bucket, front):
    upload(data, bucket)
    gcs.delete(f"{bucket}/train.tfrecord-00001-of-00004")
    front.requests.clear()
    result = upload(data, bucket)
    assert result.sent == ["train.tfrecord-00001-of-00004", "manifest.json"]
    assert front.written_names() == [MARKER, "train.tfrecord-00001-of-00004", "manifest.json"]
    kinds = [request.kind for request in front.requests]
    assert kinds.index("delete") < kinds.index("put")  # the old manifest goes before a shard changes
    front.requests.clear()
    assert upload(data, bucket).sent == []
    assert {request.kind for request in front.requests} == {"list"}


def test_another_version_replaces_the_first_and_stale_shards_go_when_asked(data, bucket, tmp_path):
    upload(data, bucket)
    gcs.write(f"{bucket}/notes.txt", b"mine")
    new = tmp_path / "new"
    write(new, {"train": [70, 70]}, name="new")
    with raises(OutputError, "output.different-settings", "150", "cbda1c53ffaa", "toy"):
        upload(new, bucket)
    assert read_bucket(bucket) == local(data) | {"notes.txt": b"mine"}
    result = upload(new, bucket, overwrite=True)
    assert len(result.stale) == 5
    result = upload(new, bucket, delete_stale=True)
    assert (result.sent, len(result.deleted)) == ([], 5)
    assert read_bucket(bucket) == local(new) | {"notes.txt": b"mine", "rejected.jsonl": b'{"reason": "empty"}\n'}


def test_a_dataset_that_does_not_verify_is_not_uploaded(data, bucket, front):
    shard = data / "train.tfrecord-00000-of-00004"
    shard.write_bytes(shard.read_bytes()[:-1] + b"!")
    with raises(T5prepError, "dataset.altered"):
        upload(data, bucket)
    assert front.requests == []


def test_two_datasets_never_mix(data, bucket, tmp_path):
    gcs.write(f"{bucket}/{MARKER}", json.dumps({"digest": "other", "task": "toy"}).encode())
    with raises(OutputError, "output.locked"):
        upload(data, bucket)
    assert list(gcs.objects(bucket)) == [MARKER]


def test_an_object_changed_meanwhile_is_never_overwritten(data, bucket, front):
    rival = f"{bucket}/train.tfrecord-00002-of-00004"

    meddled = []

    def first_shard(request):
        if request.kind == "put" and not meddled:
            meddled.append(1)
            gcs.write(rival, b"somebody else's")
        return ""

    front.fault = first_shard
    with raises(OutputError, "output.concurrent-change"):
        upload(data, bucket, workers=1)
    assert gcs.read(rival) == b"somebody else's"
    assert "manifest.json" not in gcs.objects(bucket)


@pytest.mark.parametrize("fault", ["400", "404", "410", "429", "503", "cut", "lost", "spoil", "stall"])
def test_every_kind_of_fault_is_survived(data, bucket, front, fault, monkeypatch):
    if fault == "stall":
        monkeypatch.setattr(gcs, "TIMEOUT_SECONDS", (60.0, 0.5))
        front.stalled = 1.0
    struck = set()
    front.fault = once_each("put", fault, struck)
    upload(data, bucket)
    assert struck == {path.name for path in data.iterdir()}
    front.fault = lambda request: ""
    assert read_bucket(bucket) == local(data)
    assert len(front.written_names()) == len(set(front.written_names()))


def test_a_first_write_that_arrives_damaged_is_repeated(data, bucket, front):
    struck = set()
    front.fault = once_each("multipart", "400", struck)
    upload(data, bucket)
    assert struck
    front.fault = lambda request: ""
    assert read_bucket(bucket) == local(data)


def test_one_in_ten_requests_fails_and_nothing_is_lost(data, bucket, front):
    front.fault = every(10, "503", "cut")
    for number in range(4):
        upload(data, f"{bucket}/{number}")
    faults = sum(1 for request in front.requests if request.status in (0, 503))
    front.fault = lambda request: ""
    assert faults >= 4
    assert all(read_bucket(f"{bucket}/{number}") == local(data) for number in range(4))


@pytest.mark.parametrize(
    ("kind", "permission"),
    [("list", "storage.objects.list"), ("begin", "storage.objects.create"), ("put", "storage.objects.create")],
)
def test_a_permanent_403_is_one_sentence(data, bucket, front, kind, permission):
    front.fault = lambda request: "403" if request.kind == kind else ""
    with raises(OutputError, "bucket.missing-permission", bucket, "anonymous", permission) as raised:
        upload(data, bucket)
    assert sum(request.status == 403 for request in front.requests) <= 2 * len(local(data))  # not again and again
    assert "\n" not in str(raised.value)


def test_a_token_that_expires_is_renewed(data, bucket, front, monkeypatch):
    from google.auth.credentials import Credentials
    from google.cloud import storage

    class Tokens(Credentials):
        renewed = 0

        def refresh(self, request):
            self.renewed += 1
            self.token = f"token-{self.renewed}"

    tokens = Tokens()
    client = storage.Client(
        project="test", credentials=tokens, client_options={"api_endpoint": os.environ["STORAGE_EMULATOR_HOST"]}
    )
    monkeypatch.setattr(gcs, "client", lambda: client)
    front.fault = lambda http_request: (
        "401" if http_request.token == "Bearer token-1" and http_request.kind == "put" else ""
    )
    upload(data, bucket, workers=1)
    assert tokens.renewed == 2
    front.fault = lambda http_request: "401"
    with raises(OutputError, "bucket.invalid-credentials"):
        upload(data, f"{bucket}/other")


def test_a_large_file_goes_on_at_the_byte_where_it_stood(bucket, front, tmp_path, monkeypatch):
    monkeypatch.setattr(uploads, "CHUNK_BYTES", 256 << 10)
    data = tmp_path / "data"
    write(data, {"train": [1500]}, length=1000)
    name = "train.tfrecord-00000-of-00001"
    size = (data / name).stat().st_size
    assert size > 4 * uploads.CHUNK_BYTES
    puts = []

    def third_fails(request):
        if request.kind == "put" and request.name == name:  # the index goes up beside it
            puts.append(request)
            return "403" if len(puts) == 3 else ""
        return ""

    front.fault = third_fails
    with raises(OutputError, "bucket.missing-permission", bucket):
        upload(data, bucket)
    front.fault = lambda request: ""
    upload(data, bucket)
    sent = sum(request.received for request in front.requests if request.kind == "put" and request.name == name)
    assert sent == size + uploads.CHUNK_BYTES  # only the refused chunk was sent twice
    assert read_bucket(bucket) == local(data)


KILLS = 3
KILLED = """
import sys
from t5prep.io import gcs, uploads
uploads.CHUNK_BYTES = 256 << 10
from t5prep.dataset.upload import upload
upload(sys.argv[1], sys.argv[2], workers=2)
"""


@pytest.mark.slow
def test_killed_again_and_again_at_random_moments(bucket, front, tmp_path):
    """No object is sent twice by an upload whose process dies, and the manifest comes last; other uploads meet errors, not kills."""
    data = tmp_path / "data"
    write(data, {"train": [1000] * 6}, length=1000)
    dice = random.Random(1)
    for _ in range(KILLS):
        puts, put_limit, reached, dead = itertools.count(1), dice.randint(1, 4), threading.Event(), threading.Event()

        def hold(request, puts=puts, put_limit=put_limit, reached=reached, dead=dead):
            """Let some chunks in, and hold back all others until the process is dead."""
            if request.kind == "put" and next(puts) >= put_limit:
                reached.set()
                dead.wait(600)
            return ""

        front.fault = hold
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(data), bucket], cwd=os.getcwd())
        while not reached.wait(0.02):
            assert process.poll() is None
        time.sleep(dice.uniform(0, 0.1))
        process.kill()
        process.wait()
        dead.set()
        assert "manifest.json" not in gcs.objects(bucket)
    front.fault = lambda request: ""
    subprocess.run([sys.executable, "-c", KILLED, str(data), bucket], cwd=os.getcwd(), check=True)
    assert read_bucket(bucket) == local(data)
    object_names = [name for name in front.written_names() if name != MARKER]
    assert len(object_names) == len(set(object_names))
    assert object_names[-1] == "manifest.json"
    total = sum(len(content) for content in local(data).values())
    sent = sum(request.received for request in front.requests if request.kind == "put")
    assert sent <= total + KILLS * 2 * (256 << 10)  # each worker loses at most the chunk it was sending


def test_the_command_says_what_it_did(data, bucket):
    from click.testing import CliRunner

    from t5prep.cli import main

    first = CliRunner().invoke(main, ["upload", str(data), bucket, "--json"])
    assert first.exit_code == 0, first.output
    assert len(json.loads(first.stdout)["sent"]) == 8
    second_result = CliRunner().invoke(main, ["upload", str(data), bucket])
    assert re.search(r"0 objects sent .*8 there already", second_result.stdout)
    bad = CliRunner().invoke(main, ["upload", str(data), "s3://bucket"])
    assert bad.exit_code == 1
    assert "gs://bucket/prefix" in bad.output


def test_a_bucket_is_verified_and_inspected_as_a_directory_is(data, bucket, front):
    from t5prep.dataset.verify import verify

    upload(data, bucket)
    front.requests.clear()
    assert verify(bucket) == verify(data)
    assert sum(request.answered for request in front.requests if request.kind == "read") >= sum(
        path.stat().st_size for path in data.glob("*.tfrecord-*")
    )
    gcs.write(f"{bucket}/train.tfrecord-00009-of-00010", b"")
    with raises(T5prepError, "dataset.stray-shard"):
        verify(bucket)
    gcs.delete(f"{bucket}/train.tfrecord-00009-of-00010")
    name = "train.tfrecord-00001-of-00004"
    content = gcs.read(f"{bucket}/{name}")
    for spoiled, code in (
        (content[:-1], "dataset.altered"),
        (content[:-1] + b"!", "dataset.altered"),
        (None, "dataset.unreadable"),
    ):
        gcs.delete(f"{bucket}/{name}")
        if spoiled is not None:
            gcs.write(f"{bucket}/{name}", spoiled)
        with raises(T5prepError, code, name):
            verify(bucket)
    gcs.delete(f"{bucket}/manifest.json")
    with raises(T5prepError, "dataset.missing-manifest", "manifest.json"):
        verify(bucket)


def test_reading_a_bucket_survives_faults(data, bucket, front):
    from t5prep.dataset.verify import verify

    upload(data, bucket)
    front.fault = every(5, "503", "cut")
    assert verify(bucket).settings.task == "toy"
    front.fault = lambda request: "403" if request.kind == "read" else ""
    with raises(OutputError, "bucket.missing-permission", "storage.objects.get"):
        verify(bucket)


def test_a_read_that_stalls_is_made_again_and_a_spoiled_one_is_never_believed(data, bucket, front, monkeypatch):
    from t5prep.dataset.verify import verify

    upload(data, bucket)
    with monkeypatch.context() as impatient:
        impatient.setattr(gcs, "TIMEOUT_SECONDS", (60.0, 0.5))
        front.stalled = 1.0
        stalled = set()
        front.fault = once_each("read", "stall", stalled)
        assert verify(bucket) == verify(data)
    assert stalled == {path.name for path in data.iterdir()} - {"rejected.jsonl"}
    # Ranges of shards are compared with the manifest, whole objects with the checksum that the bucket sends.
    for name, code in (
        ("train.tfrecord-00001-of-00004", "dataset.altered"),
        ("manifest.json", "bucket.damaged-object"),
    ):
        front.fault = lambda request, name=name: "spoil" if request.kind == "read" and request.name == name else ""
        with raises(T5prepError, code, name) as raised:
            verify(bucket)
        assert "\n" not in str(raised.value)
