"""Sign kept files with a key of this user on this machine: what is damaged, or was written by others, is never read.

The key is 32 random bytes in the user's state folder ($XDG_STATE_HOME/t5prep/key, else ~/.local/state/t5prep/key), which
only the user may read. Where the key cannot be kept, nothing is signed, and nothing is read.
"""

import contextlib
import hashlib
import hmac
import os
import secrets
from pathlib import Path

import google_crc32c

from t5prep.io import state_folder

# In place of a key where only damage is feared: a CRC-32C, which anybody can make, and which takes a fortieth of the time.
CHECKSUM = b""
_HEAD, _SIZE = b"t5prep-signed ", 32


def key_path() -> Path:
    """Return the path of the key. Raises RuntimeError if this user has no home."""
    return state_folder.path_of("key")


def derived_key(use: str) -> bytes | None:
    """Return a key for one use that may leave this machine, because it does not tell the user's own; None if there is none."""
    key = _key(make=True)
    return None if key is None else hmac.digest(key, use.encode(), "sha256")


def sign(content: bytes, *, name: str, key: bytes | None = None) -> bytes | None:
    """Return the content with its signature before it, for a file of that name; None if there is no key.

    `key` is a derived one, or CHECKSUM; without it the user's own signs.
    """
    if (key := _key(make=True) if key is None else key) is None:
        return None
    return _HEAD + _signature(key, name, content).encode() + b"\n" + content


def check(signed: bytes, *, name: str, key: bytes | None = None) -> bytes | None:
    """Return the content of a signed file; None if it is damaged, or signed by others, or for another name."""
    head, _, content = signed.partition(b"\n")
    if not head.startswith(_HEAD) or (key := _key(make=False) if key is None else key) is None:
        return None
    expected_signature = _signature(key, name, content).encode()
    return content if hmac.compare_digest(head[len(_HEAD) :], expected_signature) else None


def _signature(key: bytes, name: str, content: bytes) -> str:
    if key == CHECKSUM:
        return f"{google_crc32c.extend(google_crc32c.value(name.encode()), content):08x}"
    mac = hmac.new(key, len(name.encode()).to_bytes(8, "big") + name.encode(), hashlib.sha256)
    mac.update(content)
    return mac.hexdigest()


def _key(*, make: bool) -> bytes | None:
    """Return the key, which may be made now; None if it cannot be read, or if others may read or write it."""
    if make:
        try:
            with contextlib.suppress(FileExistsError):
                _make(key_path())
        except (OSError, RuntimeError):
            return None
    key = state_folder.read("key", closed_to_others=0o077)
    return key if key is not None and len(key) == _SIZE else None


def _make(path: Path) -> None:
    """Make the key, complete or not at all. Raises FileExistsError if it is there."""
    if path.exists():
        return
    state_folder.make()
    part = path.with_name(f"{path.name}-{os.getpid()}-{secrets.token_hex(4)}")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(_SIZE))
        os.link(part, path)  # fails where another process was first
    finally:
        part.unlink(missing_ok=True)
