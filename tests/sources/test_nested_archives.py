"""Archives inside of archives are read; one that holds itself, or too much, is refused."""

import dataclasses
import io
import tarfile
import zipfile
from pathlib import Path

import pytest
from raised import raises
from servers.internet import Internet

from t5prep import sources
from t5prep.errors import SourceError
from t5prep.sources import archives


def zip_of(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def tar_of(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("T5PREP_CACHE", str(tmp_path / "cache"))


def read(source: str) -> dict[str, bytes]:
    contents = {}
    for file in sources.resolve(source).files:
        with sources.open_stream(file) as stream:
            contents[file.name] = stream.read()
    return contents


@pytest.mark.parametrize("outer", [zip_of, tar_of])
@pytest.mark.parametrize(("inner", "name"), [(zip_of, "b.zip"), (tar_of, "b.tar.gz"), (tar_of, "b.tgz")])
def test_an_archive_in_an_archive_is_read(outer: object, inner: object, name: str, tmp_path: Path) -> None:
    suffix = "zip" if outer is zip_of else "tar.gz"
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(outer({"x.csv": b"1", f"deep/{name}": inner({"y.csv": b"22", "z/y.csv": b"333"})}))  # type: ignore[operator]
    expected = {
        f"a.{suffix}/deep/{name}/y.csv": b"22",
        f"a.{suffix}/deep/{name}/z/y.csv": b"333",
        f"a.{suffix}/x.csv": b"1",
    }
    assert read(str(path)) == read(str(path)) == expected
    assert len(list((tmp_path / "cache" / "sources" / "unpacked").iterdir())) == 1
    resolved = sources.resolve(str(path), include="y.csv")
    assert [file.name for file in resolved.files] == [name for name in expected if name.endswith("y.csv")]


def test_an_archive_on_the_hub_is_read(internet: Internet) -> None:
    source = internet.hub.publish(
        "me/tars", {"train.tar.gz": tar_of({"a.csv": b"1"}), "x/test.tgz": tar_of({"a.csv": b"2"})}
    )
    assert read(source) == {"train.tar.gz/a.csv": b"1", "x/test.tgz/a.csv": b"2"}


def test_too_many_archives_inside_of_each_other_are_refused(tmp_path: Path) -> None:
    content = b"text\n"
    name = "a.csv"
    for level in range(4):
        content, name = zip_of({name: content}), f"{level}.zip"
    (tmp_path / "all.zip").write_bytes(content)
    with raises(SourceError, "file.unsupported-archive", "3"):
        sources.resolve(str(tmp_path / "all.zip"))


def test_a_bomb_in_an_archive_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(archives.MAX_BYTES, "100000")
    (tmp_path / "a.zip").write_bytes(zip_of({"b.zip": zip_of({"c.csv": bytes(200_000)})}))
    with raises(SourceError, "file.oversized-archive", "100,000"):
        sources.resolve(str(tmp_path / "a.zip"))


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_members_that_are_bombs_only_together_are_refused(
    depth: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = archives.limits
    monkeypatch.setattr(archives, "limits", lambda: dataclasses.replace(limits(), any_ratio_below=1 << 20))
    files = {f"{number}.csv": bytes(1 << 20) for number in range(8)}
    for level in range(depth):
        inner = zip_of(files)
        files = {f"{level}-{number}.zip": inner for number in range(2)}
    (tmp_path / "a.zip").write_bytes(zip_of(files))
    with raises(SourceError, "file.oversized-archive", "a.zip", archives.MAX_RATIO):
        sources.resolve(str(tmp_path / "a.zip"))
    monkeypatch.setenv(archives.MAX_RATIO, "1e9")
    assert sum(file.bytes for file in sources.resolve(str(tmp_path / "a.zip")).files) == 8 << 20 + depth


def test_a_damaged_archive_in_an_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(zip_of({"b.zip": b"PK no zip"}))
    with raises(SourceError, "file.damaged", "a.zip/b.zip", "zip"):
        sources.resolve(str(tmp_path / "a.zip"))
