import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from raised import assert_error, raises

from t5prep import sources
from t5prep.cli import main
from t5prep.errors import SourceError
from t5prep.reading import columns
from t5prep.tasks.filters import chain


def _run(*arguments: str) -> str:
    result = CliRunner().invoke(main, ["filter", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def pages(tmp_path: Path) -> str:
    """A corpus of ten texts with 1 to 10 words, the last of them with an address."""
    lines = [json.dumps({"body": " ".join(["word"] * n) + (" me@example.org" if n == 9 else "")}) for n in range(1, 11)]
    (tmp_path / "pages.jsonl").write_text("\n".join(lines))
    return str(tmp_path / "pages.jsonl")


def test_all_filters_are_listed_with_their_settings() -> None:
    printed = _run()
    assert [name for name in chain.names() if f"\n{name}\n" not in f"\n{printed}"] == []
    assert "least_words=50" in printed
    assert "https://arxiv.org/abs/2112.11446" in printed
    assert json.loads(_run("gopher", "--json"))["gopher"]["settings"]["stop_words"]["default"] == 2


def test_filters_are_tried_in_their_order(pages: str) -> None:
    printed = _run("words:least=4", "addresses", "words:most=8", "--try", pages, "--column", "body")
    assert "words:least=4: 3 of 10 rows rejected (30.0%), with 6 words" in printed
    assert "addresses: 0 of 7 rows rejected (0.0%), with 0 words, 1 changed" in printed
    assert "words:most=8: 2 of 7 rows rejected" in printed
    assert "too few: 1 words, at least 4  |  word" in printed
    assert printed.endswith("kept: 5 of 10 rows, 30 of 56 words\n")


def test_the_same_as_json(pages: str) -> None:
    facts = json.loads(_run("words:least=4", "--try", pages, "--column", "body", "--limit", "5", "--json"))
    assert (facts["texts"], facts["kept"], facts["outcomes"][0]["reasons"]) == (5, 2, {"too few": 3})


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["gofer"], ("filter.unknown", '"gofer"', '"gopher"')),
        (["--try", "PAGES", "--column", "body"], ("option.missing", "--try", "pages.jsonl")),
        (["words", "--try", "PAGES"], ("column.missing", "pages.jsonl", '"text"')),
        (["words:least=x", "--try", "PAGES", "--column", "body"], ("filter.invalid-value", "least", '"x"')),
    ],
)
def test_what_cannot_be_tried_is_a_sentence(arguments: list[str], error: tuple[str, ...], pages: str) -> None:
    result = CliRunner().invoke(main, ["filter", *(pages if word == "PAGES" else word for word in arguments)])
    assert result.exit_code == 1
    assert_error(result.stderr, *error)


@pytest.mark.parametrize("command", ["filter", "tokenizer check"])
def test_a_table_is_read_with_the_options_of_prepare(command: str, tmp_path: Path) -> None:
    """Their messages advised `--delimiter`, and they had no such option."""
    table = tmp_path / "rows.csv"
    table.write_bytes("1|naïve words here\n2|other words there\n".encode("cp1252"))
    options = ["--delimiter", "|", "--encoding", "cp1252", "--columns", "id,body", "--column", "body", "--json"]
    words = {
        "filter": ["filter", "words:least=1", "--try", str(table)],
        "tokenizer check": ["tokenizer", "check", "sample:", "--source", str(table)],
    }[command]
    result = CliRunner().invoke(main, [*words, *options], catch_exceptions=False)
    assert json.loads(result.output)["texts"] == 2
    refused = CliRunner().invoke(main, [*words, "--delimiter", "::"])
    assert refused.exit_code == 1
    assert_error(refused.stderr, "option.malformed", '--delimiter "::"')


def test_no_row_to_try(pages: str, tmp_path: Path) -> None:
    printed = _run("words:least=99", "addresses", "--try", pages, "--column", "body")
    assert "0 of 0" not in printed
    assert printed.splitlines()[-2].startswith("addresses: ")
    (tmp_path / "empty.csv").write_text("body\n")
    with raises(SourceError, "row.missing", "empty.csv"):
        list(columns.texts(sources.resolve(str(tmp_path / "empty.csv")), columns=["body"]))
    (tmp_path / "one.csv").write_text("body\nword\n")
    assert "of 1 row " in _run("words:least=1", "--try", str(tmp_path / "one.csv"), "--column", "body")
