"""Every error has a code: documented, printed in brackets and as JSON, and carried through pickling and Beam."""

import json
import pickle
import re
import traceback

import error_pages
import pytest
from click.testing import CliRunner

from pipelines import engines
from t5prep import errors
from t5prep.cli import main
from t5prep.error_codes import CODES
from t5prep.errors import DatasetError, SourceError, T5prepError
from t5prep.sources.http import Refused

PAGE = error_pages.ROOT / "docs" / "errors.md"
KINDS = [kind for kind in T5prepError.__subclasses__() if kind.__module__ == errors.__name__]


def test_the_sources_use_exactly_the_documented_codes() -> None:
    used = dict(error_pages.used_codes())
    assert {code: path for code, path in used.items() if code not in CODES} == {}, "add them to t5prep/error_codes.py"
    assert set(CODES) - set(used) == set(), "no error has these codes"
    assert [code for code in CODES if not re.fullmatch(r"[a-z]+\.[a-z0-9]+(-[a-z0-9]+)*", code)] == []


def test_the_page_lists_the_codes() -> None:
    assert PAGE.read_text(encoding="utf-8") == error_pages.markdown(), "make reference"


@pytest.mark.parametrize(
    ("arguments", "exit_code", "code"),
    [
        (["verify", "absent"], 1, "dataset.not-found"),
        (["train", "--unknown"], 2, "option.unknown"),
        (["inspect"], 2, "option.missing"),
        (["absent"], 2, "option.unknown-command"),
        (["--unknown"], 2, "option.unknown"),
        (["prepare", "so_quality", "word", "--source", "sample:", "--out", "x"], 2, "option.unexpected-argument"),
    ],
)
def test_the_command_line_prints_the_code_at_the_end(arguments: list[str], exit_code: int, code: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, result.stdout) == (exit_code, "")
    assert result.stderr.endswith(f" [{code}]\n")


@pytest.mark.parametrize("arguments", [["verify", "absent", "--json"], ["verify", "absent", "--json", "--unknown"]])
def test_json_holds_the_code_and_the_message(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments)
    error = json.loads(result.stdout)["error"]
    assert error["code"] in CODES
    assert result.stderr.endswith(f"{error['message']} [{error['code']}]\n")


@pytest.mark.parametrize(
    "kind",
    sorted(
        (kind for kind in T5prepError.__subclasses__() if kind.__module__ == errors.__name__),
        key=lambda kind: kind.__name__,
    ),
)
def test_an_error_keeps_its_code_when_it_is_pickled(kind: type[T5prepError]) -> None:
    error = pickle.loads(pickle.dumps(kind("a message", code="row.missing")))
    assert (type(error), str(error), error.code) == (kind, "a message", "row.missing")


def test_a_refusal_keeps_its_status_when_it_is_pickled() -> None:
    refused = pickle.loads(pickle.dumps(Refused("no", status=404)))
    assert (str(refused), refused.code, refused.status) == ("no", "source.request-refused", 404)


@pytest.mark.parametrize("newline", ["\n", "\\n"])
@pytest.mark.parametrize("step", ["", " [while running 'Read/Map']"])
def test_an_error_of_a_remote_worker_keeps_its_code(step: str, newline: str) -> None:
    """An engine sends the text of a traceback; Beam adds the step to the message."""
    error = DatasetError("lost: a.tfrecord", code="dataset.unreadable")
    try:
        raise type(error)(str(error.args[0]) + step, *error.args[1:])
    except DatasetError:
        text = traceback.format_exc().replace("\n", newline)
    with pytest.raises(DatasetError) as raised, engines.explained("flink", out="out"):
        raise RuntimeError(text)
    assert (str(raised.value), raised.value.code) == ("lost: a.tfrecord", "dataset.unreadable")


def test_an_error_of_a_local_worker_loses_the_step_and_keeps_its_code() -> None:
    with pytest.raises(SourceError) as raised, engines.explained("flink", out="out"):
        raise SourceError("gone [while running 'Read/Map']", code="source.not-found")
    assert (str(raised.value), raised.value.code) == ("gone", "source.not-found")
