"""Tar archives are read as zip archives are: members by name, nothing is unpacked to where a name says, no links."""

import io
import tarfile
from pathlib import Path

import pytest
from raised import raises

import t5prep
from t5prep import sources
from t5prep.errors import SourceError

ROWS = {
    "b/second.csv": b"text,label\nlast,1\n",
    "a/first.csv": b"text,label\none,0\ntwo,1\n" * 400,
    "._b.csv": b"\0noise",
}


def archive(path: Path, files: dict[str, bytes], *members: tarfile.TarInfo, mode: str = "w") -> Path:
    """Write a tar archive of files, and of members that are no files."""
    with tarfile.open(path, mode) as opened:  # type: ignore[call-overload]
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            opened.addfile(info, io.BytesIO(content))
        for info in members:
            opened.addfile(info)
    return path


@pytest.mark.parametrize(
    ("name", "mode"),
    [("x.tar", "w"), ("x.tar.gz", "w:gz"), ("x.TGZ", "w:gz"), ("x.tar.bz2", "w:bz2"), ("x.txz", "w:xz")],
)
def test_members_are_read_by_name(tmp_path: Path, name: str, mode: str) -> None:
    path = archive(tmp_path / name, ROWS, mode=mode)
    resolved = sources.resolve(str(path))
    assert [file.name for file in resolved.files] == [f"{name}/a/first.csv", f"{name}/b/second.csv"]
    for _ in range(2):
        for file in reversed(resolved.files):
            with sources.open_stream(file) as stream:
                assert stream.read() == ROWS[file.name.partition("/")[2]]
    with sources.open_random(resolved.files[0]) as random:
        random.seek(11)
        assert random.read(5) == b"one,0"
    assert [file.name for file in sources.resolve(str(path), include=["second.*"]).files] == [f"{name}/b/second.csv"]


def test_a_dataset_of_a_tar_has_the_rows_of_its_members_and_the_same_bytes_each_time(tmp_path: Path) -> None:
    path = archive(tmp_path / "x.tgz", {"./a.csv": ROWS["a/first.csv"]}, mode="w:gz")
    chosen = {
        "tokenizer": "sample:",
        "inputs_column": "text",
        "targets_column": "label",
        "fresh": True,
        "dedup": "exact",
    }
    for out in ("one", "two"):
        manifest = t5prep.prepare("text2text", source=path, out=tmp_path / out, **chosen)
        assert [(file.name, file.bytes) for file in manifest.source.files] == [
            ("x.tgz/a.csv", len(ROWS["a/first.csv"]))
        ]
    first_files, second_files = ({p.name: p.read_bytes() for p in (tmp_path / out).iterdir()} for out in ("one", "two"))
    assert first_files == second_files


def member(name: str, kind: bytes = tarfile.REGTYPE, to: str = "") -> tarfile.TarInfo:
    """Describe a member without content."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, to
    return info


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (member("../../evil.csv"), "climbs out"),
        (member("/etc/evil.csv"), "absolute path"),
        (member("link.csv", tarfile.SYMTYPE, "/etc/passwd"), "is a link"),
        (member("hard.csv", tarfile.LNKTYPE, "a.csv"), "is a link"),
        (member("pipe.csv", tarfile.FIFOTYPE), "is a device or a pipe"),
        (member("disk.csv", tarfile.BLKTYPE), "is a device or a pipe"),
    ],
)
def test_a_member_that_is_no_plain_file_inside_refuses_the_archive(
    tmp_path: Path, bad: tarfile.TarInfo, reason: str
) -> None:
    path = archive(tmp_path / "x.tar", {"a.csv": b"text\nx\n"}, bad)
    with raises(SourceError, "file.unsafe-archive", str(reason), "x.tar"):
        sources.resolve(str(path))


def test_a_member_twice_a_cut_archive_a_bomb_and_another_kind_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    twice = tmp_path / "twice.tar"
    archive(archive(twice, {"a.csv": b"1"}), {"a.csv": b"2"}, mode="a")
    with raises(SourceError, "file.duplicate-member", "a.csv"):
        sources.resolve(str(twice))
    archive_bytes = archive(tmp_path / "whole.tar", {"a.csv": b"text\nx\n", "b.csv": b"text\ny\n"}).read_bytes()
    for size in (100, 512 + 3, 1024, 1024 + 512, 2048):
        (tmp_path / "cut.tar").write_bytes(archive_bytes[:size])
        with raises(SourceError, "file.damaged", "tar"):
            sources.resolve(str(tmp_path / "cut.tar"))
    packed = archive(tmp_path / "bomb.tar.gz", {"a.csv": bytes(70 << 20)}, mode="w:gz")
    with raises(SourceError, "file.oversized-archive"):
        sources.resolve(str(packed))
    (tmp_path / "x.7z").write_bytes(b"7z")
    with raises(SourceError, "file.unsupported-archive"):
        sources.resolve(str(tmp_path / "x.7z"))
