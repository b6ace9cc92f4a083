"""Answers of Kaggle's hosts that nobody should get: one sentence or the right rows, and no credential for other hosts."""

import base64
import dataclasses
import hashlib
import io
import itertools
import json
import shutil
import time
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from raised import raises
from servers.http import Answer, Fault
from servers.internet import Internet

from t5prep.errors import SourceError
from t5prep.sources import http, open_stream, resolve

FILES = {"train.csv": b"Id,Y\n" + b"1,HQ\n" * 500, "valid.csv": b"Id,Y\n2,HQ\n"}
EVIL = "https://evil.example/archive.zip?X-Goog-Signature=5ecre7519"


@pytest.fixture
def dataset(internet: Internet, monkeypatch: pytest.MonkeyPatch) -> str:
    """Publish a private dataset; the user has a token. `evil.example` notes what it is asked, and answers with the zip."""
    monkeypatch.setenv("KAGGLE_API_TOKEN", internet.kaggle.token)
    internet.server.apps["evil.example"] = lambda request: Answer(body=zip_of(FILES))
    return internet.kaggle.publish("owner/name", FILES, version=9, private=True)


def zip_of(files: dict[str, bytes], **options: Any) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", **options) as archive:
        for name, body in files.items():
            archive.writestr(name, body)
    return out.getvalue()


def end_of(internet: Internet, dataset: str, *, exact: bool = True) -> str:
    """Read all files of the dataset; return the sentence that this ends with, "" if they are right (or not `exact`)."""
    message = ""
    try:
        files = {file.name: open_stream(file).read() for file in resolve(dataset).files}
        assert not exact or {name: files.get(name) for name in FILES} == FILES
    except SourceError as error:
        message = str(error)
        assert "\n" not in message
        assert len(message) < 600
    for secret in (internet.kaggle.token, "5ecre7519"):
        assert secret not in message
    for request in internet.server.requests:
        if request.host == "evil.example":
            assert not {"authorization", "cookie"} & request.headers.keys()
            assert internet.kaggle.token not in repr(request)
    return message


FACTS: tuple[tuple[str, Any], ...] = (
    *(("currentVersionNumber", value) for value in (None, -5, "x", 10**400, 2**63, [], {"a": 1}, 1e308, True)),
    *(
        (name, value)
        for name in ("licenseName", "title", "creatorName")
        for value in (None, 7, [], {"a": []}, "\ud800")
    ),
    *(("title", "x" * 100_000), ("title", "a\nb\x1b[31m"), ("id", "many"), ("tags", 5)),
)


@pytest.mark.parametrize(("name", "value"), FACTS)
def test_facts_of_another_kind_are_a_sentence(internet: Internet, dataset: str, name: str, value: object) -> None:
    facts = {**internet.kaggle._datasets["owner/name"], name: value}
    answer = Answer(200, {"Content-Type": "application/json"}, json.dumps(facts).encode())
    internet.server.faults = [Fault("GetDataset", method="POST", answer=answer, times=9)]
    end_of(internet, dataset)


@pytest.mark.parametrize("body", [b"null", b"7", b"[" * 100_000, b"{", b"\xff\xfe", b'{"a": ' * 5000])
def test_documents_of_another_kind_are_a_sentence(internet: Internet, dataset: str, body: bytes) -> None:
    answer = Answer(200, {"Content-Type": "application/json"}, body)
    internet.server.faults = [Fault("GetDataset", method="POST", answer=answer, times=9)]
    assert end_of(internet, dataset)


@pytest.mark.parametrize(
    ("host", "answer"),
    [
        ("DownloadDataset", Answer(302, {"Location": EVIL})),
        ("DownloadDataset", Answer(302, {"Location": EVIL.replace("https", "http")})),
        ("DownloadDataset", Answer(302, {"Location": "file:///etc/passwd"})),
        ("DownloadDataset", Answer(302, {"Location": "https://[evil.example/a.zip"})),
        ("DownloadDataset", Answer(302, {"Location": "//"})),
        ("DownloadDataset", Answer(302, {})),
        ("DownloadDataset", Answer(302, {"Location": "https://www.kaggle.com/again"})),
        ("DownloadDataset", Answer(200, {"x-goog-hash": "md5=abc"}, b"PK")),
        ("archive.zip", Answer(302, {"Location": EVIL})),
        ("archive.zip", Answer(302, {"Location": EVIL.replace("https", "http")})),
        ("archive.zip", Answer(200, {"x-goog-hash": "md5=abc"}, zip_of(FILES))),
        ("archive.zip", Answer(200, {"x-goog-hash": "md5===="}, zip_of(FILES))),
        ("archive.zip", Answer(206, {"Content-Range": "bytes 5-9/10"}, b"12345")),
        ("archive.zip", Answer(302, {"Location": "https://[evil.example/a.zip"})),
        ("archive.zip", Answer(416, {"Content-Range": "bytes */0"})),
        ("archive.zip", Answer(200, {"Content-Length": "\xb2"}, b"PK")),
        ("archive.zip", Answer(200, {"Content-Length": "9" * 5000}, b"PK")),
        ("archive.zip", Answer(206, {"Content-Range": f"bytes 0-1/{'9' * 5000}"}, b"PK")),
        ("archive.zip", Answer(200, {"x-goog-hash": "md5=AAAAAAAAAAAAAAAAAAAAAA=="}, zip_of(FILES))),
    ],
)
def test_answers_that_lead_elsewhere_are_a_sentence_or_the_rows(
    internet: Internet, dataset: str, host: str, answer: Answer
) -> None:
    method = "POST" if host == "DownloadDataset" else "GET"
    internet.server.faults = [Fault(host, method=method, answer=answer, times=50)]
    internet.server.faults.append(Fault("www.kaggle.com/again", answer=answer, times=50))
    end_of(internet, dataset)


@pytest.mark.parametrize("address", [EVIL.replace("https", "http"), "http://169.254.169.254/latest/meta-data"])
def test_no_request_leaves_for_an_address_without_encryption(internet: Internet, dataset: str, address: str) -> None:
    plain = Answer(302, {"Location": address.replace("http://", f"http://localhost:{internet.server.port}/?")})
    internet.server.faults = [Fault("DownloadDataset", method="POST", answer=plain, times=9)]
    with raises(SourceError, "kaggle.invalid-response"):
        resolve(dataset)
    internet.server.faults = [Fault("archive.zip", answer=plain, times=9)]
    with raises(SourceError, "source.insecure-redirect"):
        resolve(dataset)
    assert not internet.server.requests_of("localhost")


def pieces(piece: bytes, seconds: float = 0.0) -> Iterator[bytes]:
    """Yield a piece again and again, 200 MB or 60 seconds of it: more than any test takes."""
    for _ in range(200_000_000 // len(piece) if not seconds else int(60 / seconds)):
        yield piece
        time.sleep(seconds)


BEGINS: dict[str, dict[str, str]] = {"GetDataset": {}, "DownloadDataset": {"Location": EVIL}, "archive.zip": {}}


@pytest.mark.parametrize("host", BEGINS)
@pytest.mark.parametrize("status", [200, 302, 404, 503])
@pytest.mark.parametrize(("piece", "seconds"), [(b"[" * 100_000, 0.0), (b" ", 0.05)], ids=["endless", "trickling"])
def test_bodies_without_an_end_cost_little(
    internet: Internet,
    dataset: str,
    monkeypatch: pytest.MonkeyPatch,
    host: str,
    status: int,
    piece: bytes,
    seconds: float,
) -> None:
    monkeypatch.setattr(http, "MOST_JSON_BYTES", 1 << 20)
    monkeypatch.setattr(http, "SLOW_SECONDS", 0.2)
    monkeypatch.setattr(http, "TRIES", 2)
    answer = Answer(status, BEGINS[host], pieces=lambda: pieces(piece, seconds))
    method = "GET" if host == "archive.zip" else "POST"
    # The first request for the archive is answered rightly: its size and its checksum are known then.
    right_answers = [Fault(host, method=method)] if method == "GET" else []
    internet.server.faults = [*right_answers, Fault(host, method=method, answer=answer, times=9)]
    began = time.monotonic()
    tracemalloc.start()
    message = end_of(internet, dataset)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 << 20
    assert time.monotonic() - began < 10
    assert message or (host, status) == ("DownloadDataset", 302)
    assert seconds or not parts(internet)


def parts(internet: Internet) -> list[Path]:
    """Return the unfinished downloads that a complete cache would not hold."""
    return list((Path(internet.environment["T5PREP_CACHE"]) / "sources" / "parts").glob("*.part"))


def test_a_body_of_unknown_size_leaves_some_of_the_disk(
    internet: Internet, dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = Answer(200, pieces=lambda: pieces(bytes(1 << 20)))
    internet.server.faults = [Fault("archive.zip", answer=answer, times=9)]
    used = itertools.count(0, 256 << 20)
    disk = shutil.disk_usage(internet.environment["HOME"])
    monkeypatch.setattr(shutil, "disk_usage", lambda _: disk._replace(free=(4 << 30) - next(used)))
    with raises(SourceError, "cache.insufficient-space"):
        resolve(dataset)
    assert not parts(internet)


def test_a_connection_that_breaks_at_each_byte_is_given_up(internet: Internet, dataset: str) -> None:
    internet.server.faults = [Fault("archive.zip"), Fault("archive.zip", cut=1, times=100)]
    with raises(SourceError, "source.unavailable", str(http.TRIES)):
        resolve(dataset)
    assert len(internet.server.requests_of("archive.zip")) == 1 + http.TRIES
    internet.server.faults = []
    assert {file.name: open_stream(file).read() for file in resolve(dataset).files} == FILES  # resumed


@pytest.mark.parametrize(
    "content", [b'{"a": "x", "b": "y"}\n' * 100, b'{"code": 404, "message": "a column"}\n', b"[" * 9999]
)
def test_a_file_of_json_is_a_file(internet: Internet, content: bytes) -> None:
    internet.kaggle.publish("owner/name", {"rows.jsonl": content})
    sound = internet.kaggle.storage
    internet.server.apps["storage.googleapis.com"] = lambda request: dataclasses.replace(
        sound(request), headers={**sound(request).headers, "Content-Type": "application/json"}
    )
    (file,) = resolve("kaggle:owner/name#rows.jsonl").files
    assert open_stream(file).read() == content


def test_the_token_is_sent_although_netrc_has_a_default(internet: Internet, dataset: str) -> None:
    (Path(internet.environment["HOME"]) / ".netrc").write_text("default login me password other\n")
    assert not end_of(internet, dataset)


def _patched(content: bytes, begin: bytes, offset: int, value: bytes) -> bytes:
    index = content.index(begin) + offset
    return content[:index] + value + content[index + len(value) :]


SOUND = zip_of(FILES, compression=zipfile.ZIP_DEFLATED)
CENTRAL, END = b"PK\x01\x02", b"PK\x05\x06"
ZIPS: dict[str, Callable[[], bytes]] = {
    "cut": lambda: SOUND[:-30],
    "without its end": lambda: SOUND[: len(SOUND) // 2],
    "only an end": lambda: END + bytes(18),
    "a begin alone": lambda: b"PK\x03\x04",
    "encrypted": lambda: _patched(_patched(SOUND, CENTRAL, 8, b"\x01\x00"), b"PK\x03\x04", 6, b"\x01\x00"),
    "an unknown method": lambda: _patched(_patched(SOUND, CENTRAL, 10, b"\x63\x00"), b"PK\x03\x04", 8, b"\x63\x00"),
    "a size of 4 GB": lambda: _patched(SOUND, CENTRAL, 24, b"\xfe\xff\xff\xff"),
    "a wrong CRC": lambda: _patched(SOUND, CENTRAL, 16, b"\x01\x02\x03\x04"),
    "an offset beyond its end": lambda: _patched(SOUND, CENTRAL, 42, b"\xff\xff\xff\x7f"),
    "many entries": lambda: _patched(SOUND, END, 8, b"\xff\xff\xff\xff"),
    "a file twice": lambda: zip_of(FILES).replace(b"valid.csv", b"train.csv"),
    "a link": lambda: _patched(SOUND, CENTRAL, 40, b"\xff\xa1"),
    "names above": lambda: zip_of({"../../x.csv": b"a,b\n1,2\n", "/etc/x.csv": b"a,b\n1,2\n"}),
    "a name of NUL": lambda: zip_of(FILES).replace(b"valid.csv", b"va\0id.csv"),
    "a name that is not UTF-8": lambda: zip_of(FILES).replace(b"valid.csv", b"va\xffid.csv"),
    "bytes that are no deflate stream": lambda: SOUND[:45] + bytes(12) + SOUND[57:],
}


# zipfile counts entries itself, ends a name at NUL, and reads other names as cp437.
READ = ("many entries", "a name of NUL", "a name that is not UTF-8")


@pytest.mark.parametrize("name", ZIPS)
def test_damaged_archives_are_a_sentence(internet: Internet, dataset: str, name: str) -> None:
    body = ZIPS[name]()
    md5 = base64.b64encode(hashlib.md5(body).digest()).decode()
    answer = Answer(200, {"x-goog-hash": f"md5={md5}", "Content-Type": "application/zip"}, body)
    internet.server.faults = [Fault("archive.zip", answer=answer, times=50)]
    if not end_of(internet, dataset, exact=False):
        assert name in READ
