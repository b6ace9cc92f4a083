"""A bucket whose reader pays: the paying project is sent, or one sentence says how to name it. And emulators."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from click.testing import CliRunner
from raised import assert_error, raises

from t5prep.cli import main
from t5prep.errors import OutputError, T5prepError
from t5prep.io import gcs
from t5prep.sources import open_stream, resolve

ROWS = b"text\none\n"


class _Bucket(BaseHTTPRequestHandler):
    """A bucket with one object, for those who name a project."""

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = parse_qs(url.query)
        about = {"name": "a.csv", "bucket": "payer", "size": str(len(ROWS)), "generation": "1", "crc32c": "AAAAAA=="}
        status, body = 200, json.dumps(about).encode()
        if query.get("userProject") != ["mine"]:
            message = "Bucket is a requester pays bucket but no user project provided."
            status, body = 400, json.dumps({"error": {"code": 400, "message": message}}).encode()
        elif "alt" in query and query["alt"] == ["media"]:
            first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
            status, body = 206, ROWS[first : last + 1]
        elif url.path.endswith("/o"):
            body = json.dumps({"items": [about]}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if status == 206:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(ROWS)}")
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def payer(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of an object in such a bucket."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Bucket)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.delenv(gcs.PAYER, raising=False)
    yield "gs://payer/a.csv"
    server.shutdown()
    thread.join()
    server.server_close()


def test_without_a_project_the_sentence_says_how_to_name_one(payer: str) -> None:
    with raises(T5prepError, "bucket.missing-billing-project", payer, gcs.PAYER):
        resolve(payer)


def test_the_project_pays_for_listing_and_reading(payer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(gcs.PAYER, "mine")
    (file,) = resolve(payer).files
    with open_stream(file) as stream:
        assert stream.read() == ROWS


def test_a_run_is_not_written_past_an_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:9023")
    with raises(OutputError, "bucket.unsupported-emulator", "gs://bucket/runs/a", "http://127.0.0.1:9023"):
        gcs.check_tensorflow_reaches("gs://bucket/runs/a")
    gcs.check_tensorflow_reaches("runs/a")
    addresses = {"127.0.0.1": {"127.0.0.1"}, "storage.googleapis.com": {"127.0.0.1"}}
    monkeypatch.setattr(gcs, "_ips", addresses.__getitem__)
    gcs.check_tensorflow_reaches("gs://bucket/runs/a")
    monkeypatch.undo()
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    gcs.check_tensorflow_reaches("gs://bucket/runs/a")


@pytest.mark.parametrize(
    "command",
    [
        "predict rows.txt --model gs://bucket/runs/a",
        "eval --model gs://bucket/runs/a",
        "embed gs://bucket/runs/a rows.txt --out vectors",
        "export --model gs://bucket/runs/a --out model",
        "push --model gs://bucket/runs/a --repo me/model",
        "train --recipe tiny --data data --out gs://bucket/runs/a",
    ],
)
def test_a_run_in_a_bucket_is_not_sought_past_an_emulator(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TensorFlow reads a run at Google, whatever bucket of that name there is, while t5prep's client asks the emulator."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:9")
    monkeypatch.chdir(tmp_path)
    Path("rows.txt").write_text("a row\n")
    result = CliRunner().invoke(main, command.split())
    assert result.exit_code == 1
    assert_error(result.stderr, "bucket.unsupported-emulator", "gs://bucket/runs/a", "http://127.0.0.1:9")
