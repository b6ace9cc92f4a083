"""Paths, directories, globs, and the archives and packed files found there."""

import bz2
import contextlib
import dataclasses
import gzip
import io
import lzma
import os
import stat
import sys
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from raised import raises

from t5prep.errors import SourceError, UsageError
from t5prep.sources import open_random, open_stream, opening, resolve, sha256
from t5prep.sources.raw import EXAMPLES, parse


def names(source: str | Path, **options) -> list[str]:
    return [file.name for file in resolve(str(source), **options).files]


def read(source: str | Path, **options) -> dict[str, bytes]:
    return {file.name: open_stream(file).read() for file in resolve(str(source), **options).files}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, body in {
        "a.csv": b"1",
        "sub/b.csv": b"2",
        "sub/c.txt": b"3",
        ".hidden/x.csv": b"no",
        ".DS_Store": b"no",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(body)
    return tmp_path


def test_a_file_is_named_by_its_name_and_a_directory_by_paths_in_it(tree: Path):
    assert names(tree / "sub/b.csv") == ["b.csv"]
    assert names(tree) == ["a.csv", "sub/b.csv", "sub/c.txt"]
    assert names(f"{tree}/**/*.csv") == ["a.csv", "sub/b.csv"]
    assert names(f"{tree}/su?/[bc].*") == ["sub/b.csv", "sub/c.txt"]


def test_names_do_not_depend_on_where_one_stands(tree: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tree)
    assert names(".") == names(tree)
    assert names("**/*.csv") == ["a.csv", "sub/b.csv"]
    assert names("sub/*.csv") == ["b.csv"] == names(f"{tree}/sub/*.csv")


def test_include_chooses_by_whole_names_or_their_last_parts(tree: Path):
    assert names(tree, include="*.csv") == ["a.csv", "sub/b.csv"]
    assert names(tree, include=["b.csv", "sub/*.txt"]) == ["sub/b.csv", "sub/c.txt"]


@pytest.mark.parametrize(
    ("source", "code", "values"),
    [
        ("{tree}/nothing", "source.not-found", ("/nothing ",)),
        ("{tree}/sub/c.tx", "source.not-found", ('"c.txt"',)),
        ("{tree}/sub/d", "source.not-found", ("b.csv, c.txt",)),
        ("/dev/null", "source.special-file", ("/dev/null",)),
        # As Path.exists says:
        ("x" * 5000, "source.unreadable" if sys.version_info < (3, 14) else "source.not-found", ("x" * 5000,)),
        ("~nobody-of-this-name/*.csv", "source.unreadable", ("~nobody-of-this-name",)),
        ("{tree}/*.parquet", "source.files-missing", ("/*.parquet ",)),
        ("", "option.missing", ()),
        ("kagle:a/b", "source.unknown-scheme", ('"kagle:"', '"kaggle"')),
        ("ftp://host/x", "source.unknown-scheme", ('"ftp:"',)),
        ("kaggle:only-one", "source.invalid-address", (EXAMPLES["kaggle"],)),
        ("kaggle:a/b@latest", "source.invalid-address", (EXAMPLES["kaggle"],)),
        ("zenodo:abc", "source.invalid-address", (EXAMPLES["zenodo"],)),
        ("hf:glue", "source.invalid-address", (EXAMPLES["hf"],)),
        ("hf:a/b#", "source.invalid-address", (EXAMPLES["hf"],)),
        ("https:/example.org", "source.invalid-address", (EXAMPLES["https"],)),
        ("gs:bucket", "source.invalid-address", (EXAMPLES["gs"],)),
    ],
)
def test_what_cannot_be_is_said_with_an_example(source: str, code: str, values: tuple[str, ...], tree: Path):
    with raises(SourceError, code, *values) as error:
        resolve(source.format(tree=tree))
    assert "\n" not in str(error.value)


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=40))
def test_no_text_breaks_the_grammar(text: str):
    with contextlib.suppress(SourceError):
        assert parse(text).uri


def test_include_without_a_match_tells_what_there_is(tree: Path):
    with raises(SourceError, "source.files-missing"):
        resolve(str(tree), include="x.csv")


def zstd(data: bytes) -> bytes:
    """Two frames, as parallel packers write them."""
    codec, half = pa.Codec("zstd"), len(data) // 2
    return b"".join(codec.compress(part).to_pybytes() for part in (data[:half], data[half:]))


@pytest.mark.parametrize(
    ("suffix", "pack"), [("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress), ("zst", zstd)]
)
def test_packed_files_are_unpacked_as_they_are_read(suffix: str, pack, tmp_path: Path):
    body = os.urandom(1000) * 300
    (tmp_path / f"a.jsonl.{suffix}").write_bytes(pack(body))
    (file,) = resolve(str(tmp_path)).files
    assert open_stream(file).read() == body
    assert open_random(file).read() == body
    assert file.bytes == (tmp_path / file.name).stat().st_size


@pytest.mark.parametrize("suffix", ["gz", "bz2", "xz", "zst"])
def test_a_packed_file_that_was_cut_is_said_to_be_damaged(suffix: str, tmp_path: Path):
    pack = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstd}[suffix]
    (tmp_path / f"a.{suffix}").write_bytes(pack(os.urandom(5000))[:-900])
    (file,) = resolve(str(tmp_path)).files
    with raises(SourceError, "file.damaged"):
        open_stream(file).read()


@pytest.mark.parametrize("suffix", ["gz", "bz2", "xz", "zst"])
def test_a_file_that_is_not_packed_as_its_name_says_is_said_to_be_damaged(suffix: str, tmp_path: Path):
    (tmp_path / f"a.{suffix}").write_bytes(b"text that nobody packed, but for the ending of its name")
    (file,) = resolve(str(tmp_path)).files
    with raises(SourceError, "file.damaged", str(suffix)):
        open_stream(file).read()


def test_what_is_unpacked_is_closed_with_its_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"text"))
    (tmp_path / "b.bz2").write_bytes(bz2.compress(b"text"))
    zip_file(tmp_path / "c.zip", ("d.txt", b"text"))
    files, opened = resolve(str(tmp_path)).files, []
    open_path = opening._open_path
    monkeypatch.setattr(
        opening, "_open_path", lambda *args, **kwargs: opened.append(open_path(*args, **kwargs)) or opened[-1]
    )
    for file in files:
        with open_stream(file) as stream:
            assert stream.read() == b"text"
        sha256(file)
    with raises(SourceError, "source.concurrent-change", " gone "):
        open_stream(dataclasses.replace(files[2], member="gone"))
    assert [handle.closed for handle in opened] == [True] * 7


@pytest.mark.parametrize("name", [b"caf\xe9.csv", b"caf\xe9/a.csv"])
def test_a_name_that_is_not_utf8_is_refused(name: bytes, tmp_path: Path):
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
    path.parent.mkdir(exist_ok=True)
    path.write_text("a,b\n1,2\n")
    for source in (tmp_path, path):
        with raises(SourceError, "file.invalid-name"):
            resolve(str(source))


def zip_file(path: Path, *members: tuple[str | zipfile.ZipInfo, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, body in members:
            archive.writestr(name, body)
    return path


def test_zip_members_are_read_in_place(tmp_path: Path):
    source = zip_file(
        tmp_path / "corpus.zip",
        ("input/train.csv", b"id\n1\n"),
        ("input/valid.jsonl.gz", gzip.compress(b"{}")),
        ("__MACOSX/input/._train.csv", b"noise"),
        ("input/", b""),
        ("windows\\b.csv", b"2"),
    )
    assert read(source) == {
        "corpus.zip/input/train.csv": b"id\n1\n",
        "corpus.zip/input/valid.jsonl.gz": b"{}",
        "corpus.zip/windows/b.csv": b"2",
    }
    assert names(tmp_path, include="*/train.csv") == ["corpus.zip/input/train.csv"]
    assert os.listdir(tmp_path) == ["corpus.zip"]


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_parquet_inside_a_zip_is_read_by_row_group(method: int, tmp_path: Path):
    table = pa.table({"text": [f"row {i}" for i in range(1000)]})
    buffer = io.BytesIO()
    pq.write_table(table, buffer, row_group_size=100)
    source = zip_file(tmp_path / "corpus.zip", ("data.parquet", buffer.getvalue()), method=method)
    (file,) = resolve(str(source)).files
    assert pq.ParquetFile(open_random(file)).read_row_group(7)["text"][0].as_py() == "row 700"


def encrypted(path: Path) -> None:
    """Set the encryption bit in both headers of the only member, as a zip with a password has it."""
    body = bytearray(zip_file(path, ("a.csv", b"x")).read_bytes())
    body[6] |= 1
    body[body.index(b"PK\1\2") + 8] |= 1
    path.write_bytes(body)


def symlink(path: Path) -> None:
    info = zipfile.ZipInfo("a.csv")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    zip_file(path, (info, b"/etc/passwd"))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda p: zip_file(p, ("../../a.csv", b"x")), ("file.unsafe-archive", '"../../a.csv"')),
        (lambda p: zip_file(p, ("a/../../b.csv", b"x")), ("file.unsafe-archive", '"a/../../b.csv"')),
        (lambda p: zip_file(p, ("..\\a.csv", b"x")), ("file.unsafe-archive", '"..\\a.csv"')),
        (lambda p: zip_file(p, ("/etc/a.csv", b"x")), ("file.unsafe-archive", '"/etc/a.csv"')),
        (lambda p: zip_file(p, ("C:\\a.csv", b"x")), ("file.unsafe-archive", '"C:\\a.csv"')),
        (symlink, ("file.unsafe-archive", '"a.csv"')),
        (encrypted, ("file.encrypted-archive",)),
        (lambda p: zip_file(p, ("a.csv", b"0" * (80 << 20))), ("file.oversized-archive",)),
        (lambda p: p.write_bytes(b"<html>not found</html>"), ("file.damaged",)),
        (
            lambda p: p.write_bytes(zip_file(p, ("a.csv", os.urandom(9999))).read_bytes()[:-500]),
            ("file.damaged",),
        ),
    ],
)
def test_archives_that_mean_harm_are_refused(make, says: tuple[str, ...], tmp_path: Path):
    make(tmp_path / "bad.zip")
    with raises(SourceError, *says, "bad.zip"):
        resolve(str(tmp_path / "bad.zip"))


def test_a_member_whose_bytes_were_changed_is_said_to_be_damaged(tmp_path: Path):
    path = zip_file(tmp_path / "a.zip", ("a.csv", b"a,b,c" * 99), method=zipfile.ZIP_STORED)
    path.write_bytes(path.read_bytes().replace(b"a,b,c", b"a;b,c", 1))
    (file,) = resolve(str(path)).files
    with raises(SourceError, "file.damaged"):
        open_stream(file).read()


def test_a_bomb_that_does_not_tell_its_size_is_stopped_while_it_is_read(tmp_path: Path):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"0" * (80 << 20)))
    (file,) = resolve(str(tmp_path)).files
    stream = open_stream(file)
    assert len(stream.read(60 << 20)) == 60 << 20
    with raises(SourceError, "file.oversized-archive", "T5PREP_MAX_UNPACKED_RATIO"):
        stream.read(10 << 20)


def test_the_user_can_raise_the_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source = zip_file(tmp_path / "a.zip", ("a.csv", b"0" * (70 << 20)))
    monkeypatch.setenv("T5PREP_MAX_UNPACKED_RATIO", "5000")
    assert names(source) == ["a.zip/a.csv"]
    monkeypatch.setenv("T5PREP_MAX_UNPACKED_BYTES", "1e6")
    with raises(SourceError, "file.oversized-archive", "1,000,000"):
        resolve(str(source))
    monkeypatch.setenv("T5PREP_MAX_UNPACKED_BYTES", "much")
    with raises(UsageError, "option.invalid-variable", "much"):
        resolve(str(source))


def test_sha256_is_of_the_bytes_as_they_are(tmp_path: Path):
    (tmp_path / "a.gz").write_bytes(b"")
    zip_file(tmp_path / "b.zip", ("c.txt", b""))
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert [sha256(file) for file in resolve(str(tmp_path)).files] == [empty, empty]


@pytest.mark.extra("seeds")
def test_real_corpora(shared_data: Path):
    assert names(shared_data / "sst2") == ["dev.tsv", "test.tsv", "train.tsv"]
    (train,) = resolve(str(shared_data / "sst2"), include="train.tsv").files
    with open_stream(train) as stream:
        assert sum(1 for _ in stream) > 60_000
