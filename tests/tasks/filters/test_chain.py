import hashlib
from pathlib import Path

import pytest
from raised import raises

from t5prep.errors import UsageError
from t5prep.tasks.example import EOS, Example, Protected
from t5prep.tasks.filters.chain import Chain, parse

USER_FILTERS = '''
from t5prep.tasks import Reject

def no_shouting(text):
    """Lower what is shouted, reject what is only shouted."""
    if text.isupper():
        raise Reject("shouting: all capitals")
    return text.replace("WHY", "why")

def broken(text):
    return text != ""

def failing(text):
    return text[100]

def leaving(text):
    raise SystemExit(0)
'''


def test_the_first_filter_that_rejects_gives_the_reason() -> None:
    chain = Chain(["words:least=2", "pattern:drop=b"])
    assert chain(Example("1", "b", "t"))[1] == "words too few: 1 words, at least 2"
    assert chain(Example("1", "a b", "t"))[1] == "pattern found: 'b'"
    assert chain(Example("1", "a c", "t")) == (Example("1", "a c", "t"), "", ())


def test_parts_are_judged_together_and_changed_alone() -> None:
    example = Example(
        "1", (Protected("who is a@b.org?"), EOS, "one two c@d.org"), "c@d.org", references=("e@f.org", "g")
    )
    filtered_example, reason, changed = Chain(["words:least=6", "addresses"])(example)
    mask = "email@example.com"
    assert (reason, changed) == ("", ("addresses",))
    assert filtered_example.inputs == (Protected(f"who is {mask}?"), EOS, f"one two {mask}")
    assert (filtered_example.targets, filtered_example.references) == (mask, (mask, "g"))


def test_tokens_are_judged_after_tokenizing() -> None:
    chain = Chain(["words", "tokens:least=5,most=9"])
    assert chain(Example("1", "a", "t"))[1] == ""
    assert chain.judge_tokens(4) == "tokens too few: 4 tokens, at least 5"
    assert chain.judge_tokens(10) == "tokens too many: 10 tokens, at most 9"
    assert chain.judge_tokens(9) == ""


def test_a_users_own_function(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(USER_FILTERS)
    chain = Chain([f"{path}:no_shouting"])
    assert chain(Example("1", "HELP ME", "t"))[1] == "mine.no_shouting shouting: all capitals"
    assert chain(Example("1", "WHY not", "t")) == (Example("1", "why not", "t"), "", ("mine.no_shouting",))
    with raises(UsageError, "filter.failure", "mine.py:leaving", '"a"', "SystemExit: 0"):
        Chain([f"{path}:leaving"])(Example("1", "a", "t"))
    with raises(UsageError, "filter.invalid-result", "mine.py:broken"):
        Chain([f"{path}:broken"])(Example("1", "a", "t"))
    with raises(UsageError, "filter.failure", "IndexError", "string index out of range"):
        Chain([f"{path}:failing"])(Example("1", "a", "t"))
    assert chain.files() == {str(path): hashlib.sha256(USER_FILTERS.encode()).hexdigest()}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("gofer", ("filter.unknown", '"gofer"', '"gopher"')),
        ("gopher:words=3", ("filter.unknown-setting", '"words=3"', "least_words")),
        ("gopher:least_words", ("filter.unknown-setting", '"least_words"')),
        ("gopher:least_words=", ("filter.invalid-value", 'least_words ""')),
        ("gopher:least_words=-1", ("filter.invalid-value", 'least_words "-1"')),
        ("gopher:symbols=nan", ("filter.invalid-value", 'symbols "nan"')),
        ("words:least=1,,most=2", ("filter.invalid-value", 'least "1,"')),
        ("addresses:do=hide", ("filter.invalid-value", '"addresses:do=hide"', "mask, drop")),
        ("pattern", ("filter.missing-setting", "--filter pattern")),
        ("pattern:drop=(", ("filter.invalid-expression", '"("')),
        ("nothing.py:it", ("filter.unreadable", "nothing.py:it")),
        ("c4:bad_words=nothing.txt", ("filter.unreadable", "bad_words=nothing.txt")),
    ],
)
def test_what_is_no_filter_is_a_sentence(text: str, error: tuple[str, ...]) -> None:
    with raises(UsageError, *error):
        parse(text)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("x = (", ("filter.import-failure", "SyntaxError")),
        ("import nothing_there", ("filter.import-failure", "nothing_there")),
        ("def it(text): return text", ("filter.missing-function", "its")),
    ],
)
def test_a_users_file_that_cannot_be_used_is_a_sentence(source: str, says: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(source)
    with raises(UsageError, *says):
        parse(f"{tmp_path}/mine.py:its")
