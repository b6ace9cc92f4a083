"""No credential appears in anything that is said or written: planted ones are looked for everywhere."""

import contextlib
import logging
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
from raised import raises
from servers.http import Answer, Fault
from servers.internet import Internet

from t5prep.errors import SourceError
from t5prep.sources import http, hub, open_random, raw, resolve

PLANTED = {
    "HF_TOKEN": "hf_planted0hub",
    "KAGGLE_API_TOKEN": "KGAT_planted0kaggle",
    "KAGGLE_USERNAME": "planted0user",
    "KAGGLE_KEY": "planted0key",
    "ZENODO_TOKEN": "planted0zenodo",
}
ADDRESS = "https://planted0name:planted0password@example.org/a.csv?token=planted0query&X-Goog-Signature=planted0signed"


@pytest.fixture
def everything(internet: Internet, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Sources of every kind, and a credential for each."""
    for name, value in PLANTED.items():
        monkeypatch.setenv(name, value)
    internet.hub.token, internet.kaggle.token = PLANTED["HF_TOKEN"], PLANTED["KAGGLE_API_TOKEN"]
    internet.zenodo.token = PLANTED["ZENODO_TOKEN"]
    internet.page("example.org/a.csv", b"1")
    body = {"a.csv": b"a,b\n" * 1000}
    return [
        internet.hub.publish("a/b", body, private=True),
        internet.kaggle.publish("a/b", body, private=True),
        internet.zenodo.publish(5, body),
        ADDRESS,
    ]


@contextlib.contextmanager
def all_logs() -> Iterator[list[str]]:
    """Every log line of every library, as any handler would write it, at its most talkative."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(handler.format(record))  # type: ignore[method-assign]
    root, level = logging.getLogger(), logging.getLogger().level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    talkative = [logging.getLogger(name) for name in ("kagglehub", "kagglesdk", "huggingface_hub", "httpx2", "urllib3")]
    previous_settings = [(logger, logger.level, logger.propagate) for logger in talkative]
    for logger in talkative:
        logger.setLevel(logging.DEBUG)
        logger.propagate = True
    try:
        yield lines
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
        for logger, was, propagated in previous_settings:
            logger.level, logger.propagate = was, propagated


@pytest.mark.parametrize("variable", ["KAGGLE_API_TOKEN", "ZENODO_TOKEN"])
def test_a_token_that_was_copied_badly_is_a_sentence(
    everything: list[str], variable: str, monkeypatch: pytest.MonkeyPatch
):
    source = next(source for source in everything if source.startswith(variable.partition("_")[0].lower()))
    monkeypatch.setenv(variable, f"{PLANTED[variable]}\r\n")
    assert resolve(source).files
    for token in ("planted0\nx: y", "planted0\u2026", "\u201cplanted0\u201d"):
        monkeypatch.setenv(variable, token)
        with raises(SourceError, "source.invalid-token", source) as error:
            resolve(source)
        assert "planted0" not in "".join(traceback.format_exception(error.value))


def test_planted_credentials_are_nowhere(
    everything: list[str], internet: Internet, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch
):
    outputs: list[str] = []
    monkeypatch.setattr(http, "TRIES", 2)
    with all_logs() as lines:
        for source in everything:
            outputs.append(repr(resolve(source, progress=True)))
        with monkeypatch.context() as small:
            small.setattr(hub, "STREAM_BYTES", -1)
            far = resolve(everything[0])
        outputs.append(repr((far, open_random(far.files[0]).read())))
        monkeypatch.setenv("T5PREP_CACHE", str(tmp_path / "other"))
        for answer in (
            Answer(401, body=b"Invalid credentials: hf_planted0hub"),
            Answer(403),
            Answer(404),
            Answer(429),
            Answer(503),
            Answer(body=b"<html>planted0password</html>"),
            Answer(302, {"Location": "https://no-such-host.example.org/x?sig=planted0signed"}),
        ):
            for source in everything:
                internet.server.faults = [
                    Fault("", times=9, answer=answer, method=method) for method in ("GET", "POST")
                ]
                try:
                    resolve(source)
                except SourceError:
                    outputs.append(traceback.format_exc())
                except Exception:
                    pytest.fail(f"{answer.status}: {traceback.format_exc()}")
        internet.server.close()
        monkeypatch.setenv("T5PREP_CACHE", str(tmp_path / "third"))
        for source in everything:
            with pytest.raises(SourceError) as error:
                resolve(source)
            outputs.append("".join(traceback.format_exception(error.value)))
    assert any("HTTP" in line for line in lines), "the libraries did not log: the test sees nothing"
    out, err = capfd.readouterr()
    for text in (out, err, *outputs, *lines):
        assert "planted0" not in text
    for path in tmp_path.rglob("*"):
        assert "planted0" not in path.name
        assert not path.is_file() or b"planted0" not in path.read_bytes(), path


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("GET https://u:p@h/x?a=b HTTP/1.1", "GET https://h/x?… HTTP/1.1"),
        ('h:443 "GET /x?a=b&c=d HTTP/1.1" 200', 'h:443 "GET /x?… HTTP/1.1" 200'),
        ("Authorization: Bearer abc, x", "Authorization: Bearer …, x"),
    ],
)
def test_redacted_text(text: str, safe: str):
    assert raw.redact(text) == safe
