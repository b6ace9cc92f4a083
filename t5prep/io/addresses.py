"""Hold an address that a user gives, which may have a password in it or be signed, so that its credentials are never shown.

An `Address` is a str, and this str is the public form: it is printed, written, compared, hashed and pickled. Only its
attribute `request` has the credentials; what sends a request asks for it.
"""

import hashlib
import os
import re

from t5prep.io import state_folder

_NAME = "addresses-that-were-read"
# A scheme and what shows that an address follows: a slash, or a scheme whose names never begin with a user.
_SCHEME = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]+:(?=[/\\])|(?:https?|gs|hf|kaggle|zenodo):)", re.IGNORECASE)
# A host, perhaps with a port; anything else before the first slash may be a part of a password.
_HOST = re.compile(r"(?:[^\s:@\[\]]*|\[[0-9A-Fa-f:.]*\])(?::[0-9]*)?")
_PARAMETER = re.compile(r";([\w-]+)=[^/;]*")
_IN_TEXT = re.compile(r"(?<![\w.+-])[A-Za-z][A-Za-z0-9+.-]+:[/\\][^\s\"'<>]+")
_PUNCTUATION = ").,;:]"


class Address(str):
    """An address or a path in its public form; `request` is what the user gave. A copy or a pickle has no `request` of its own.

    >>> source = Address("https://me:secret@example.org/a.csv?token=s3cr3t")
    >>> str(source), source.request
    ('https://example.org/a.csv?token=…', 'https://me:secret@example.org/a.csv?token=s3cr3t')
    """

    __slots__ = ("request",)
    request: str

    def __new__(cls, text: str) -> "Address":
        """Return the address that was given as text, or the same again."""
        if isinstance(text, Address):
            return text
        address = super().__new__(cls, public(text))
        address.request = text
        return address

    def __reduce__(self) -> tuple[type["Address"], tuple[str]]:
        return Address, (str(self),)


def public(address: str) -> str:
    """Return an address as it may be shown: no user, no password, no value of its query, no fragment. A path stays.

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


def _path(host_path: str) -> str:
    """Return a host and a path without the user and password that stand before them, which should hold no slash."""
    host, slash, path = host_path.partition("/")
    if "@" in host:
        return host.rpartition("@")[2] + slash + path
    if _HOST.fullmatch(host):
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
    """Remember that this user has named an address, in the state folder; where nothing can be written, nothing is remembered."""
    if not is_known(address):
        state_folder.append_line(_NAME, _digest(address))


def is_known(address: str) -> bool:
    """Check whether this user has named an address before; who wrote a manifest may have chosen the one in there."""
    return not _SCHEME.match(address) or _digest(address) in state_folder.lines(_NAME)


def _digest(address: str) -> str:
    return hashlib.sha256(public(address).encode(errors="surrogatepass")).hexdigest()
