"""Zenodo records, from a host that speaks its records API."""

import dataclasses
import json

import pytest
from raised import raises
from servers.http import Answer, Fault
from servers.internet import Internet
from servers.kaggle import zip_of

from t5prep.errors import SourceError
from t5prep.sources import open_stream, resolve

ZIP = zip_of({f"input/original-splits/{name}_train_original_split.csv": name.encode() for name in ("squad2", "eli5")})


@pytest.fixture
def record(internet: Internet) -> str:
    return internet.zenodo.publish(
        7186761, {"Webis CausalQA.zip": ZIP, "README.txt": b"read me"}, title="Webis-CausalQA-22"
    )


def test_a_record_is_pinned_with_licence_and_citation(internet: Internet, record: str):
    resolved = resolve(record)
    assert resolved.revision == "doi:10.5281/zenodo.7186761"
    assert resolved.licence == "cc-by-4.0"
    assert resolved.citation == (
        "Doe, Jane; Roe, Richard (2022). Webis-CausalQA-22 (v1.0). Zenodo. https://doi.org/10.5281/zenodo.7186761"
    )
    assert [file.name for file in resolved.files] == [
        "README.txt",
        "Webis CausalQA.zip/input/original-splits/eli5_train_original_split.csv",
        "Webis CausalQA.zip/input/original-splits/squad2_train_original_split.csv",
    ]
    assert all(file.checksum.startswith("md5:") for file in resolved.files)


@pytest.mark.parametrize("source", ["zenodo:10.5281/zenodo.7186761", "zenodo:https://doi.org/10.5281/zenodo.7186761"])
def test_a_doi_is_as_good_as_a_number(internet: Internet, record: str, source: str):
    assert resolve(source).files == resolve(record).files


def test_include_fetches_only_what_may_hold_it(internet: Internet, record: str):
    (file,) = resolve(record, include="*/squad2_*.csv").files
    assert open_stream(file).read() == b"squad2"
    assert internet.server.requests_of("README.txt") == []


def test_one_file_of_a_record(internet: Internet, record: str):
    assert [file.name for file in resolve(f"{record}#README.txt").files] == ["README.txt"]
    with raises(SourceError, "zenodo.missing-file"):
        resolve(f"{record}#b.zip")


def test_a_cut_is_continued_and_the_md5_holds(internet: Internet, record: str):
    internet.server.faults = [
        Fault("CausalQA.zip", cut=100),
        Fault("CausalQA.zip", answer=Answer(429, {"Retry-After": "0"})),
    ]
    assert len(resolve(record).files) == 3
    assert internet.server.requests[-1].headers.get("range") == "bytes=100-" or internet.server.requests_of(
        "README.txt"
    )


@pytest.mark.parametrize(
    "fault",
    [
        Fault("README.txt", spoil=True, times=9),
        Fault("README.txt", shorten=3, times=9),
        Fault("README.txt", answer=Answer(body=b"read me and more")),
    ],
)
def test_what_is_not_as_published_is_deleted_and_said(
    internet: Internet, record: str, fault: Fault, tmp_path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("T5PREP_CACHE", str(tmp_path / "c"))
    internet.server.faults = [fault]
    with raises(SourceError, "source.damaged-download", "README.txt"):
        resolve(f"{record}#README.txt")
    assert [path for path in (tmp_path / "c").rglob("*") if path.is_file() and path.suffix != ".lock"] == []


def test_a_part_of_another_version_is_fetched_anew(internet: Internet, record: str):
    """The first half is wrong: the MD5 fails after resuming, and one clean download repairs it."""
    internet.server.faults = [Fault("README.txt", spoil=True, cut=4)]
    (file,) = resolve(f"{record}#README.txt").files
    assert open_stream(file).read() == b"read me"


def test_no_such_record(internet: Internet):
    with raises(SourceError, "zenodo.not-found", "1"):
        resolve("zenodo:1")


def test_a_restricted_record_wants_a_token(internet: Internet, record: str, monkeypatch: pytest.MonkeyPatch):
    internet.zenodo.token = "zenodo-right"
    with raises(SourceError, "zenodo.access-denied", "ZENODO_TOKEN"):
        resolve(record)
    monkeypatch.setenv("ZENODO_TOKEN", "zenodo-right")
    assert len(resolve(record).files) == 3


def test_something_else_than_the_api_is_said(internet: Internet, record: str):
    internet.server.faults = [Fault("/api/records", answer=Answer(body=b"<html>Maintenance</html>"))]
    with raises(SourceError, "source.invalid-response"):
        resolve(record)


def test_a_link_to_another_host_gets_no_token(internet: Internet, record: str, monkeypatch: pytest.MonkeyPatch):
    internet.zenodo.token = "zenodo-right"
    monkeypatch.setenv("ZENODO_TOKEN", "zenodo-right")
    for entry in internet.zenodo._records[record.partition(":")[2]]["files"]:
        entry["links"]["self"] = entry["links"]["self"].replace("zenodo.org", "example.org")
    assert len(resolve(record).files) == 3
    assert not internet.server.requests_of("example.org")


VALUES = (
    None,
    True,
    -1,
    7,
    10**400,
    1e308,
    "",
    "x",
    "a\nb\x1b[31m",
    "md5:" + "0" * 32,
    "shake_128:00",
    "\ud800",
    [],
    {},
    [7],
    {"a": []},
)


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_facts_of_another_kind_are_a_sentence(internet: Internet, record: str, value: object):
    facts = internet.zenodo._records[record.partition(":")[2]]
    entry = facts["files"][0]
    holders = [(facts, name) for name in facts] + [(facts["metadata"], name) for name in facts["metadata"]]
    holders += [(entry, name) for name in entry] + [
        (facts["files"], 0),
        (entry["links"], "self"),
        (facts["metadata"]["creators"], 0),
    ]
    for holder, name in holders:
        sound = holder[name]
        holder[name] = value
        try:
            resolved = resolve(record)
            json.dumps(dataclasses.asdict(resolved), ensure_ascii=False).encode()
        except SourceError:
            pass
        except Exception as error:
            raise AssertionError((name, value)) from error
        holder[name] = sound
