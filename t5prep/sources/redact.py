"""Remove credentials from messages, manifests, and the log lines of the HTTP libraries.

Signed download addresses and `user:password@` are credentials too, so they are removed from every address that is
shown.
"""

import logging
import re
from urllib.parse import parse_qsl, urlsplit, urlunsplit

_USERINFO = re.compile(r"(?<=://)[^/\s@\"']+@")
_QUERY = re.compile(r"(?<=\?)[^\s\"'<>)\]]+")
_SCHEME = re.compile(r"\b(Bearer|Basic)\s+[^\s\"',]+", re.IGNORECASE)

# The loggers that log addresses with their queries: urllib3 at DEBUG, httpx at INFO, httpcore (redirects) at DEBUG.
_TALKERS = (
    "urllib3.connectionpool",
    "urllib3.util.retry",
    "httpx2",
    "httpx",
    *(f"httpcore{two}.{part}" for two in ("2", "") for part in ("connection", "proxy", "http11", "http2")),
)


def address(url: str) -> str:
    """Return an address that may be shown and recorded: no user, no password, no values in the query, no fragment.

    >>> address("https://me:secret@example.org/a.csv?token=s3cr3t&v=2")
    'https://example.org/a.csv?token=…&v=…'
    """
    try:
        parts = urlsplit(url)
    except ValueError:  # not an address at all
        return text(url)
    query = "&".join(f"{key}=…" for key, _ in parse_qsl(parts.query, keep_blank_values=True))
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, query, ""))


def text(message: str) -> str:
    """Return the message without the credentials of every address and header in it."""
    return _SCHEME.sub(r"\1 …", _QUERY.sub("…", _USERINFO.sub("", message)))


def passwords(message: str) -> str:
    """Return the message without the users and passwords of its addresses.

    >>> passwords("gs://me:secret@bucket/a?.csv does not exist")
    'gs://bucket/a?.csv does not exist'
    """
    return _USERINFO.sub("", message)


class _Redacted(logging.Filter):
    """Rewrite a log record in place; never drop one."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = text(record.getMessage()), ()
        return True


_FILTER = _Redacted()


def quiet_logs() -> None:
    """Make the loggers of the HTTP libraries leave credentials out. Calling it again does no harm."""
    for name in _TALKERS:
        logging.getLogger(name).addFilter(_FILTER)
    for handler in logging.getLogger("huggingface_hub").handlers:
        handler.addFilter(_FILTER)
