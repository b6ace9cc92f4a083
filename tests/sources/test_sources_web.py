"""Downloads over HTTPS from a host that cuts, stalls, lies and redirects; and the cache that keeps them."""

import gzip
import os
import pickle
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from raised import raises
from servers.http import Answer, Fault, Request
from servers.internet import Internet
from servers.kaggle import zip_of

from t5prep.errors import SourceError
from t5prep.sources import http, open_stream, resolve

BODY = bytes(range(256)) * 12_000  # 3 MB: several chunks


def fetched(source: str) -> bytes:
    (file,) = resolve(source).files
    return open_stream(file).read()


def parts(internet: Internet) -> list[str]:
    return os.listdir(Path(internet.environment["T5PREP_CACHE"]) / "sources" / "parts")


def test_a_file_is_named_by_its_address_and_unpacked_by_its_suffix(internet: Internet):
    source = internet.page("example.org/corpora/my%20corpus.csv.gz", gzip.compress(b"a,b\n"))
    resolved = resolve(source)
    assert [file.name for file in resolved.files] == ["my corpus.csv.gz"]
    assert resolved.revision == f"sha256:{resolved.files[0].sha256}"
    assert fetched(source) == b"a,b\n"


def test_a_zip_is_read_by_members(internet: Internet):
    source = internet.page("example.org/c.zip", zip_of({"in/a.csv": b"A", "in/b.csv": b"B"}))
    (file,) = resolve(source, include="b.csv").files
    assert (file.name, open_stream(file).read()) == ("c.zip/in/b.csv", b"B")


def faults(internet: Internet, *downloads: Fault) -> None:
    """What goes wrong with the downloads; the first request only looks at the headers, and nothing is wrong with it."""
    internet.server.faults = [Fault("/a."), *downloads]


def test_a_cut_is_continued_where_it_was(internet: Internet):
    source = internet.page("example.org/a.bin", BODY)
    faults(internet, Fault("a.bin", cut=1_500_000), Fault("a.bin", cut=700_000))
    assert fetched(source) == BODY
    resumed = [request.headers for request in internet.server.requests_of("a.bin") if "range" in request.headers]
    assert [headers["range"] for headers in resumed] == ["bytes=1500000-", "bytes=2200000-"]
    assert all(headers["if-range"] == internet.pages["example.org/a.bin"].headers["ETag"] for headers in resumed)


def test_a_later_run_continues_what_an_earlier_one_left(internet: Internet, monkeypatch: pytest.MonkeyPatch):
    source = internet.page("example.org/a.bin", BODY)
    monkeypatch.setattr(http, "TRIES", 1)
    faults(internet, Fault("a.bin", cut=1_000_000), Fault("a.bin", cut=0))
    with raises(SourceError, "source.unavailable"):
        fetched(source)
    assert len(parts(internet)) == 2  # the part, and which version it is of
    assert fetched(source) == BODY
    assert internet.server.requests[-1].headers["range"] == "bytes=1000000-"
    assert parts(internet) == []


def test_a_file_that_changed_in_between_is_fetched_anew(internet: Internet):
    source = internet.page("example.org/a.bin", BODY)
    faults(internet, Fault("a.bin", cut=1_000_000))
    pages = internet.server.apps["example.org"]

    def page(request: Request) -> Answer:
        if "range" in request.headers:
            internet.page("example.org/a.bin", BODY[::-1])
        return pages(request)

    internet.server.apps["example.org"] = page
    assert fetched(source) == BODY[::-1]


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_obeyed(internet: Internet, status: int, monkeypatch: pytest.MonkeyPatch):
    slept: list[float] = []
    monkeypatch.setattr(http, "_sleep", slept.append)
    source = internet.page("example.org/a.csv", b"1")
    internet.server.faults = [
        Fault("a.csv", answer=Answer(status, {"Retry-After": "7"})),
        Fault("a.csv", answer=Answer(status)),
    ]
    assert fetched(source) == b"1"
    assert slept[0] == 7.0
    assert 0 < slept[1] < 1


def test_a_length_that_is_no_number_is_refused(internet: Internet):
    source = internet.page("example.org/a.csv", b"1")
    internet.server.faults = [Fault("a.csv", answer=Answer(200, {"Content-Length": "-5"}))]
    with raises(SourceError, "source.invalid-response"):
        fetched(source)


def test_two_members_of_one_name_are_named(tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("rows.csv", "a")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("rows.csv", "b")
    with raises(SourceError, "file.duplicate-member", "a.zip", "rows.csv"):
        resolve(str(tmp_path / "a.zip"))


def test_a_wait_of_hours_is_the_users_to_decide(internet: Internet):
    source = internet.page("example.org/a.csv", b"1")
    internet.server.faults = [Fault("a.csv", answer=Answer(429, {"Retry-After": "7200"}))]
    with raises(SourceError, "source.rate-limit", "120"):
        fetched(source)


def test_a_host_that_stays_away_is_given_up(internet: Internet):
    source = internet.page("example.org/a.csv", b"1")
    internet.server.faults = [Fault("a.csv", times=99, answer=Answer(503))]
    with raises(SourceError, "source.unavailable", "503 Service Unavailable", "6"):
        fetched(source)


def test_a_host_that_always_breaks_and_cannot_resume_is_given_up(internet: Internet):
    source = internet.page("example.org/a.bin", BODY)
    internet.pages["example.org/a.bin"].ranges = False
    internet.server.faults = [Fault("a.bin", times=99, cut=1_000_000)]
    with raises(SourceError, "source.unavailable", "6"):
        fetched(source)


def test_a_web_page_is_not_data(internet: Internet):
    html = b"<!DOCTYPE html><html><body>Please sign in</body></html>"
    source = internet.page("example.org/a.csv", html, **{"Content-Type": "text/html; charset=utf-8"})
    with raises(SourceError, "source.web-page"):
        fetched(source)
    assert parts(internet) == []


@pytest.mark.parametrize(
    ("address", "instead"),
    [
        ("https://www.kaggle.com/datasets/imoore/60k/data", ("source.corpus-page", "kaggle:imoore/60k")),
        ("https://huggingface.co/datasets/nyu-mll/glue/tree/main", ("source.corpus-page", "hf:nyu-mll/glue")),
        ("https://zenodo.org/records/7186761", ("source.corpus-page", "zenodo:7186761")),
    ],
)
def test_pages_for_people_are_told_how_to_be_written(address: str, instead: tuple[str, ...], internet: Internet):
    with raises(SourceError, *instead):
        resolve(address)
    assert internet.server.requests == []


def test_redirects_are_followed_but_credentials_stay_behind(internet: Internet):
    internet.page("mirror.example.net/real.csv", b"1")
    internet.pages["example.org/a.csv"] = Answer(302, {"Location": "https://mirror.example.net/real.csv"})
    assert fetched("https://jane:s3cret@example.org/a.csv") == b"1"
    assert "authorization" in internet.server.requests_of("example.org/a.csv")[0].headers
    assert all("authorization" not in request.headers for request in internet.server.requests_of("mirror.example.net"))


def test_a_redirect_to_plain_http_is_refused(internet: Internet):
    internet.pages["example.org/a.csv"] = Answer(302, {"Location": f"http://localhost:{internet.server.port}/a.csv"})
    with raises(SourceError, "source.insecure-redirect"):
        resolve("https://example.org/a.csv")


@pytest.mark.parametrize("status", [404, 403])
def test_a_refusal_says_what_to_do(internet: Internet, status: int):
    internet.pages["example.org/a.csv"] = Answer(status)
    with raises(SourceError, "source.request-refused", "example.org/a.csv", str(status)):
        resolve("https://example.org/a.csv")


def test_what_is_in_the_cache_is_not_fetched_again_until_it_changes(internet: Internet):
    source = internet.page("example.org/a.bin", BODY)
    assert fetched(source) == fetched(source) == BODY
    assert len(internet.server.requests_of("a.bin")) == 3  # two looks at the headers, one download
    internet.page("example.org/a.bin", b"new")
    assert fetched(source) == b"new"


def test_a_spoiled_cache_mends_itself(internet: Internet):
    source = internet.page("example.org/a.bin", BODY)
    (file,) = resolve(source).files
    Path(file.path).unlink()
    assert fetched(source) == BODY


def test_a_cache_that_cannot_be_written_is_said(internet: Internet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("T5PREP_CACHE", str(tmp_path / "file"))
    with raises(SourceError, "cache.unwritable"):
        resolve(internet.page("example.org/a.csv", b"1"))


def test_progress_goes_to_stderr(
    internet: Internet, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("t5prep.io.progress.PATIENCE_SECONDS", -1)  # a short download draws no line
    monkeypatch.setattr("t5prep.io.progress.INTERVAL_SECONDS", -1)
    source = internet.page("example.org/a.bin", BODY)
    resolve(source, progress=True)
    out, err = capsys.readouterr()
    assert "a.bin" in err
    assert out == ""


def test_a_host_that_falls_silent_is_left_and_continued(internet: Internet, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http, "TIMEOUT", (60, 0.5))
    source = internet.page("example.org/a.bin", BODY)
    faults(internet, Fault("a.bin", cut=2_000_000, stall=True))
    assert fetched(source) == BODY
    assert internet.server.requests[-1].headers["range"].startswith("bytes=")


def test_a_process_that_is_killed_leaves_its_part_to_the_next(internet: Internet):
    source = internet.page("example.org/a.bin", BODY)
    faults(internet, Fault("a.bin", cut=2_500_000, stall=True))
    script = f"from t5prep.sources import resolve; resolve({source!r})"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    folder = Path(internet.environment["T5PREP_CACHE"]) / "sources" / "parts"
    with subprocess.Popen([sys.executable, "-c", script], env=environment) as process:
        while process.poll() is None and sum(path.stat().st_size for path in folder.glob("*.part")) < 1 << 20:
            time.sleep(0.05)
        process.kill()
    (part,) = folder.glob("*.part")
    have = part.stat().st_size
    assert fetched(source) == BODY
    assert internet.server.requests[-1].headers["range"] == f"bytes={have}-"


def test_two_processes_may_fetch_the_same_file_at_once(internet: Internet):
    source = internet.page("example.org/a.bin", BODY)
    script = f"from t5prep.sources import resolve; print(resolve({source!r}).files[0].sha256)"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    both = [
        subprocess.Popen([sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in "ab"
    ]
    outputs = {process.communicate(timeout=600)[0].strip() for process in both}
    assert [process.returncode for process in both] == [0, 0]
    assert len(outputs) == 1
    assert parts(internet) == []


def test_a_disk_that_is_too_small_is_said_before_it_is_full(internet: Internet, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 9, 1))
    with raises(SourceError, "cache.insufficient-space", "1", "3,072,000"):
        resolve(internet.page("example.org/a.bin", BODY))


def test_an_address_without_a_name_takes_the_one_its_host_gives(internet: Internet):
    internet.page("example.org/download", b"1", **{"Content-Disposition": 'attachment; filename="../b c.csv"'})
    assert [file.name for file in resolve("https://example.org/download?id=5").files] == ["b c.csv"]


def test_what_a_host_keeps_packed_is_unpacked(internet: Internet):
    internet.page("example.org/a.csv", gzip.compress(b"a,b\n"), **{"Content-Encoding": "gzip"})
    assert fetched("https://example.org/a.csv") == b"a,b\n"


def test_errors_survive_the_way_back_from_a_worker(internet: Internet):
    with pytest.raises(SourceError) as error:
        http.get("https://example.org/none", display_name="it")
    copy = pickle.loads(pickle.dumps(error.value))
    assert (type(copy), str(copy)) == (type(error.value), str(error.value))
