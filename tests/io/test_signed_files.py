"""Signed files: only what this user wrote, whole, is read; a key that others may read or write is not believed."""

import os
from pathlib import Path

import pytest

from t5prep.io import signed_files
from t5prep.io.store import Store


@pytest.fixture(autouse=True)
def own_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return signed_files.key_path()


def test_what_was_written_is_read_by_its_name_alone(tmp_path: Path, own_key: Path) -> None:
    store = Store(str(tmp_path))
    assert store.put("one", b"content")
    assert store.get("one") == b"content"
    (tmp_path / "other").write_bytes((tmp_path / "one").read_bytes())
    assert store.get("other") is None
    assert store.get("none") is None
    assert store.names() == {"one", "other", "state"}
    assert own_key.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in own_key.parent.iterdir()] == ["key"]


@pytest.mark.parametrize("key", [None, b"derived", signed_files.CHECKSUM])
def test_every_damaged_bit_and_every_cut_is_noticed(key: bytes | None) -> None:
    signed = signed_files.sign(b'{"a": 1}', name="one", key=key)
    assert signed is not None
    assert signed_files.check(signed, name="one", key=key) == b'{"a": 1}'
    for bit in range(8 * len(signed)):
        damaged = bytearray(signed)
        damaged[bit // 8] ^= 1 << bit % 8
        assert signed_files.check(bytes(damaged), name="one", key=key) is None
    assert all(signed_files.check(signed[:size], name="one", key=key) is None for size in range(len(signed)))
    assert signed_files.check(signed + b" ", name="one", key=key) is None
    assert signed_files.check(signed, name="two", key=key) is None


def test_another_users_file_is_not_read(own_key: Path) -> None:
    signed = signed_files.sign(b"content", name="one") or b""
    own_key.unlink()
    assert signed_files.check(signed, name="one") is None
    assert signed_files.sign(b"content", name="one") != signed


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o602])
def test_a_key_that_others_may_read_or_write_signs_nothing(own_key: Path, mode: int) -> None:
    signed = signed_files.sign(b"content", name="one") or b""
    os.chmod(own_key, mode)
    assert signed_files.sign(b"content", name="one") is None
    assert signed_files.check(signed, name="one") is None


def test_without_a_place_for_the_key_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert not Store(str(tmp_path)).put("one", b"content")
    assert not (tmp_path / "one").exists()
