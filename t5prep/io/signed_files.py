"""Sign cached files with a key of this user on this machine. Damaged files, and files of other users, are never read.

The key is 32 random bytes in the user's state folder ($XDG_STATE_HOME/t5prep/key, else ~/.local/state/t5prep/key), which
only the user may read. If the key cannot be stored, no file is signed and none is read.
"""

import contextlib
import hashlib
import hmac
import os
import secrets
from pathlib import Path

import google_crc32c

from t5prep.io import state_folder

# In place of a key, to detect damage only: a CRC-32C, which anybody can compute, in a fortieth of an HMAC's time.
CHECKSUM = b""
_HEAD, _SIZE = b"t5prep-signed ", 32  # the start of a signed file, before its signature; bytes of the key


def key_path() -> Path:
    """Return the path of this user's key. Raises RuntimeError if the user has no home."""
    return state_folder.path_of("key")


def job_key() -> bytes | None:
    """Return the key for cached results of an engine's job, derived from the user's key; None if there is no user's key.

    It may be sent to other machines, because it does not reveal the user's key.
    """
    key = _key(make=True)
    return None if key is None else hmac.digest(key, b"kept results", "sha256")


def sign(content: bytes, *, name: str, key: bytes | None = None) -> bytes | None:
    """Return `content` after a line with its signature, for a file called `name`; None if there is no key.

    `key` is that of a job, CHECKSUM, or None for the user's own key.
    """
    if (key := _key(make=True) if key is None else key) is None:
        return None
    return _HEAD + _signature(key, name, content).encode() + b"\n" + content


def check(signed: bytes, *, name: str, key: bytes | None = None) -> bytes | None:
    """Return the content of the signed file `name`; None if it is damaged, or signed with another key or for another name.

    `key` is that of `sign`.
    """
    head, _, content = signed.partition(b"\n")
    if not head.startswith(_HEAD) or (key := _key(make=False) if key is None else key) is None:
        return None
    expected_signature = _signature(key, name, content).encode()
    return content if hmac.compare_digest(head[len(_HEAD) :], expected_signature) else None


def _signature(key: bytes, name: str, content: bytes) -> str:
    """Return the signature of a file in hex: an HMAC-SHA-256 of name and content, or for CHECKSUM a CRC-32C."""
    if key == CHECKSUM:
        return f"{google_crc32c.extend(google_crc32c.value(name.encode()), content):08x}"
    # With the name's length, bytes cannot be moved between name and content without another signature.
    mac = hmac.new(key, len(name.encode()).to_bytes(8, "big") + name.encode(), hashlib.sha256)
    mac.update(content)
    return mac.hexdigest()


def _key(*, make: bool) -> bytes | None:
    """Return the user's key, after making it if `make` is True and it is missing.

    Return None if it cannot be read, or if other users may read or write it.
    """
    if make:
        try:
            with contextlib.suppress(FileExistsError):
                _make(key_path())
        except (OSError, RuntimeError):
            return None
    key = state_folder.read("key", closed_to_others=0o077)
    return key if key is not None and len(key) == _SIZE else None


def _make(path: Path) -> None:
    """Make the user's key atomically, unless it exists. Raises OSError, FileExistsError if another process is quicker."""
    if path.exists():
        return
    state_folder.make()
    part = path.with_name(f"{path.name}-{os.getpid()}-{secrets.token_hex(4)}")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(_SIZE))
        os.link(part, path)  # unlike a rename, this fails if another process has made the key meanwhile
    finally:
        part.unlink(missing_ok=True)
