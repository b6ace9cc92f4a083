"""Answers of Kaggle's hosts that nobody should get: one sentence or the right rows, and no credential for other hosts."""

import base64
import hashlib
import io
import json
import zipfile
from collections.abc import Callable
from typing import Any

import pytest
from servers.http import Answer, Fault
from servers.internet import Internet

from t5prep.errors import SourceError
from t5prep.sources import open_stream, resolve

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
        ("DownloadDataset", Answer(302, {"Location": "//"})),
        ("DownloadDataset", Answer(302, {})),
        ("DownloadDataset", Answer(302, {"Location": "https://www.kaggle.com/again"})),
        ("DownloadDataset", Answer(200, {"x-goog-hash": "md5=abc"}, b"PK")),
        ("archive.zip", Answer(302, {"Location": EVIL})),
        ("archive.zip", Answer(302, {"Location": EVIL.replace("https", "http")})),
        ("archive.zip", Answer(200, {"x-goog-hash": "md5=abc"}, zip_of(FILES))),
        ("archive.zip", Answer(200, {"x-goog-hash": "md5===="}, zip_of(FILES))),
        ("archive.zip", Answer(206, {"Content-Range": "bytes 5-9/10"}, b"12345")),
        ("archive.zip", Answer(416, {"Content-Range": "bytes */0"})),
    ],
)
def test_answers_that_lead_elsewhere_are_a_sentence_or_the_rows(
    internet: Internet, dataset: str, host: str, answer: Answer
) -> None:
    method = "POST" if host == "DownloadDataset" else "GET"
    internet.server.faults = [Fault(host, method=method, answer=answer, times=50)]
    internet.server.faults.append(Fault("www.kaggle.com/again", answer=answer, times=50))
    end_of(internet, dataset)


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
