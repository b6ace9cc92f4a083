"""Hold addresses that users pass, such as URLs, without ever showing their passwords or signatures.

An `Address` is a str without credentials (the public form), so printing, hashing or pickling it is safe. Only its
attribute `request` has the credentials. Code that sends a request reads that attribute.
"""

import hashlib
import os
import re

from t5prep.io import state_folder

_NAME = "addresses-that-were-read"  # a file of digests in the state folder
# The scheme of an address. A slash must follow, except for schemes that t5prep knows: "C:a.csv" and "data:1" are paths.
_SCHEME = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]+:(?=[/\\])|(?:https?|gs|hf|kaggle|zenodo):)", re.IGNORECASE)
# A host, perhaps with a port. Other text before the first slash may be a part of a password, and is hidden.
_HOST = re.compile(r"(?:[^\s:@\[\]]*|\[[0-9A-Fa-f:.]*\])(?::[0-9]*)?")
_PARAMETER = re.compile(r";([\w-]+)=[^/;]*")  # a parameter in a path, as in /a;token=s3cr3t
_REDACTED = re.compile(r"[=?&/]…(?=[&;/]|$)")  # an ellipsis of `public`
# An address inside of a sentence, and the characters that may end the sentence, but not the address.
_IN_TEXT = re.compile(r"(?<![\w.+-])[A-Za-z][A-Za-z0-9+.-]+:[/\\][^\s\"'<>]+")
_PUNCTUATION = ").,;:]"


class Address(str):
    """Hold an address or a path in its public form. `request` is the text that the user passed.

    A copy or a pickle holds the public form alone: its `request` has no credentials.

    >>> source = Address("https://me:secret@example.org/a.csv?token=s3cr3t")
    >>> str(source), source.request
    ('https://example.org/a.csv?token=…', 'https://me:secret@example.org/a.csv?token=s3cr3t')
    """

    __slots__ = ("request",)
    request: str

    def __new__(cls, text: str) -> "Address":
        """Return the address of `text`, or `text` itself if it is an Address."""
        if isinstance(text, Address):
            return text
        address = super().__new__(cls, public(text))
        address.request = text
        return address

    def __reduce__(self) -> tuple[type["Address"], tuple[str]]:
        return Address, (str(self),)


def public(address: str) -> str:
    """Return an address without user, password, query values and fragment. A path is returned unchanged.

    >>> public("https://me:secret@example.org/a.csv?token=s3cr3t&v=2#part"), public("http:/me:p w@host/a.csv")
    ('https://example.org/a.csv?token=…&v=…', 'http:/host/a.csv')
    >>> public("hf:wmt/wmt16@main#ro-en"), public("data/me@home.csv"), public("gs://bucket/a?#b.csv")
    ('hf:wmt/wmt16@main#ro-en', 'data/me@home.csv', 'gs://bucket/a?#b.csv')
    """
    scheme = _SCHEME.match(address)
    if not scheme or os.path.exists(address):
        return address
    host_path = address[scheme.end() :].lstrip("/\\")
    start = address[: len(address) - len(host_path)]
    if not address.lower().startswith(("http:", "https:")):
        return start + _path(host_path)
    host_path, question, query = host_path.partition("#")[0].partition("?")
    pairs = "&".join(f"{key}=…" if is_pair else "…" for key, is_pair, _ in (p.partition("=") for p in query.split("&")))
    return start + _PARAMETER.sub(r";\1=…", _path(host_path)) + (f"?{pairs}" if question and query else "")


def is_redacted(address: str) -> bool:
    """Check whether `address`, from a manifest, is the public form of an address with a secret in its query or parameters.

    >>> is_redacted("https://example.org/a.csv?token=…"), is_redacted("https://example.org/a.csv"), is_redacted("data/….csv")
    (True, False, False)
    """
    return bool(_SCHEME.match(address)) and _REDACTED.search(address) is not None


def _path(host_path: str) -> str:
    """Return a host and a path without the user and password before them.

    A password with a slash is hidden too, although a URL should not hold one: `me:p/w@host/a` and `me:p@/w@host/a` become
    `host/a`.
    """
    host, slash, path = host_path.partition("/")
    if "@" in host and "@" not in path:
        return host.rpartition("@")[2] + slash + path
    if "@" not in host and _HOST.fullmatch(host):
        return host_path
    return path.rpartition("@")[2] if "@" in path else f"…{slash}{path}"


def public_text(message: str) -> str:
    """Return a message with each address in it in its public form.

    >>> public_text('"s3://key:secret@bucket/a" is not read, nor is https://h/a?token=s3cr3t.')
    '"s3://bucket/a" is not read, nor is https://h/a?token=….'
    """

    def replace(match: re.Match[str]) -> str:
        address = match[0].rstrip(_PUNCTUATION)
        return public(address) + match[0][len(address) :]

    return _IN_TEXT.sub(replace, message)


def remember(address: str) -> None:
    """Record in the state folder that this user has passed `address`. If the folder cannot be written, do nothing."""
    if not is_known(address):
        state_folder.append_line(_NAME, _digest(address))


def is_known(address: str) -> bool:
    """Check whether this user has passed `address` before, or it is a path.

    An address in a manifest was chosen by the author of the dataset. It is not requested before the user has passed it.
    """
    return not _SCHEME.match(address) or _digest(address) in state_folder.lines(_NAME)


def _digest(address: str) -> str:
    """Return the SHA-256 of an address's public form, which is recorded instead of the address itself."""
    return hashlib.sha256(public(address).encode(errors="surrogatepass")).hexdigest()
