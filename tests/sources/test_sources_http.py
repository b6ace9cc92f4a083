"""How long a host asks to wait, in all the ways that hosts say it."""

import email.utils
import itertools
import time

import pytest
from raised import raises

from t5prep.errors import SourceError
from t5prep.sources import http
from t5prep.sources.http import Retries, retry_after

NOW = 1_800_000_000


def date(seconds: int) -> str:
    return email.utils.formatdate(NOW + seconds, usegmt=True)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "59", "X-RateLimit-Reset": "9999999999"}, 59),
        ({"Retry-After": date(30)}, 30),
        ({"Retry-After": date(-30)}, 0),
        ({"Retry-After": "soon"}, None),
        ({"X-RateLimit-Reset": str(NOW + 40)}, 40),
        ({"RateLimit-Reset": "17"}, 17),
        ({"RateLimit": '"resolvers";r=0;t=120'}, 120),
        ({"RateLimit": '"resolvers";r=7;t=120'}, None),
        # The clock of the host counts, where it tells it: that of this machine may be years away.
        ({"Retry-After": date(9_000_030), "Date": date(9_000_000)}, 30),
        ({"Retry-After": date(-9_000_000), "Date": date(-9_000_030)}, 30),
        ({"X-RateLimit-Reset": str(NOW - 9_000_000), "Date": date(-9_000_030)}, 30),
        ({"X-RateLimit-Reset": str(NOW + 40), "Date": "soon"}, 40),
        ({"X-RateLimit-Reset": "\xb2"}, None),  # a digit of Latin-1 that is no number
        ({"Retry-After": "\xb2"}, None),
        ({"Retry-After": f"Sun, 06 Nov 1994 08:49:37 +{'9' * 99}"}, None),
        ({"Retry-After": "9" * 30 + " Nov 1994 08:49:37 GMT"}, None),
        ({}, None),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(time, "time", lambda: NOW)
    assert retry_after(headers) == seconds


def test_pauses_grow_are_said_and_end(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    slept: list[float] = []
    monkeypatch.setattr(http, "_sleep", slept.append)
    retries = Retries("it")
    for _ in range(http.TRIES - 1):
        retries.wait("busy")
    with raises(SourceError, "source.unavailable", "6", "busy", "it"):
        retries.wait("busy")
    assert len(slept) == http.TRIES - 1
    assert "it: busy; trying again in 1" in capsys.readouterr().err
    assert all(later > 1.3 * sooner for sooner, later in itertools.pairwise(slept))
    retries.failed = 0  # the host sent something
    retries.wait("busy")
    assert slept[-1] < 2
