import sys
from pathlib import Path

import pytest
from raised import raises

from t5prep.errors import Reject, UsageError
from t5prep.tasks.filters import chain

PROSE = (
    "The lighthouse stood at the end of the cape, and nobody had lived in it since the war. In the evenings the keeper's "
    "daughter walked along the beach with her dog to look at what the sea had brought. That day it was a box of oranges, "
    "which the children carried home and hid from their teacher until the Monday that followed."
)
SENTENCES = "This is the first sentence here.\nThis is the second sentence here.\nThis is the third sentence here."


def _reason(filter: str, text: str) -> str:
    """Why a filter rejects a text, up to the first colon; "" where it does not."""
    try:
        chain.parse(filter)[1](text)
    except Reject as reject:
        return str(reject).partition(":")[0]
    return ""


@pytest.mark.parametrize("name", [name for name in chain.names() if name not in ("pattern", "language")])
def test_prose_goes_through_every_filter_as_it_is(name: str) -> None:
    text = SENTENCES if name == "c4" else PROSE
    assert chain.parse(name)[1](text) == text


@pytest.mark.parametrize("name", chain.names())
def test_a_filter_says_where_it_is_from_and_what_each_setting_is(name: str) -> None:
    import dataclasses

    kind = chain.cls(name)
    assert sys.modules[kind.__module__].__doc__
    assert all(field.metadata["help"] for field in dataclasses.fields(kind))


@pytest.mark.parametrize(
    ("filter", "text", "reason"),
    [
        ("words:least=3", "two words", "too few"),
        ("words:least=3,most=4", "one two three four five", "too many"),
        ("words:least=3,most=4", "one two three four", ""),
        ("pattern:drop=(?i)lorem", "Lorem ipsum", "found"),
        ("pattern:keep=\\d{2,}", "one 1", "not found"),
        ("pattern:keep=\\d{2,}", "one 11", ""),
        ("addresses:do=drop", "write to me@example.org", "found"),
        ("addresses:do=drop", "version 1.2.3.4.5 of 10.0.0.1 @home", ""),
        ("gopher", "word " * 49, "few words"),
        ("gopher:most_words=60", PROSE + PROSE, "many words"),
        ("gopher", "a b c d e f " * 10, "word length"),
        ("gopher", "incomprehensibilities " * 60, "word length"),
        ("gopher", PROSE + " #tag" * 8, "symbols"),
        ("gopher", PROSE.replace(" ", "... ", 10), "symbols"),
        ("gopher", "\n".join(f"• {part}" for part in PROSE.split(", ")), "bullets"),
        ("gopher:ellipses=0", PROSE + "\nand so on ...", "ellipses"),
        ("gopher", PROSE + " 1234" * 20, "letters"),
        ("gopher", "Haus Baum Straße Wagen Hund " * 12, "stop words"),
        ("gopher", "The house the tree the street the car the dog " * 6, "stop words"),
        ("gopher", "The house that tree the street the car the dog " * 6, ""),
        ("gopher:stop_words=0", "Haus Baum Straße Wagen Hund " * 12, ""),
        ("gopher", "", "few words"),
        ("gopher_repetition", "the same line here\n" * 3 + "another line\n" * 3, "repeated lines"),
        ("gopher_repetition", "a paragraph\n\n" * 3 + "and another", "repeated paragraphs"),
        ("gopher_repetition", PROSE + " buy now" * 20, "top 2-gram"),
        ("gopher_repetition", PROSE + " " + PROSE[:200], "repeated 5-grams"),
        ("gopher_repetition:factor=4", PROSE + " " + PROSE[:200], ""),
        ("gopher_repetition", "", ""),
        ("c4", PROSE[:60] + ".", "few sentences"),
        ("c4", SENTENCES + "\nLorem ipsum dolor sit amet.", "lorem ipsum"),
        ("c4", SENTENCES + "\nfunction do() { return 1; } does this.", "curly bracket"),
        ("c4:sentences=4", SENTENCES, "few sentences"),
    ],
)
def test_reasons(filter: str, text: str, reason: str) -> None:
    assert _reason(filter, text) == reason


def test_c4_takes_out_lines() -> None:
    filtered_text = chain.parse("c4")[1](
        f"Home | Shop | Contact\n{SENTENCES}\nToo short.\nPlease enable Javascript to see this page.\nWe use cookies for your"
        f" own good.\nAs was shown [12] before by many others[citation needed].\nRead more about all of this ...\n{'x' * 1001} is a"
        " very long word."
    )
    assert filtered_text == f"{SENTENCES}\nAs was shown  before by many others."


def test_c4_rejects_a_users_bad_words(tmp_path: Path) -> None:
    words = tmp_path / "bad.txt"
    words.write_text("darn\nheck of\n\n")
    assert _reason(f"c4:bad_words={words}", SENTENCES) == ""
    assert _reason(f"c4:bad_words={words}", SENTENCES + "\nThat is a Heck of a day.") == "bad word"
    assert _reason(f"c4:bad_words={words}", SENTENCES + "\nThat is a darning needle again.") == ""


def test_addresses_are_masked_and_private_ones_stay() -> None:
    text = "Ask jo.doe+x@mail.example.co.uk or 8.8.8.8 (not 192.168.0.1, 127.0.0.1, 8.8.8.8.8, 999.1.1.1)"
    expected = "Ask email@example.com or 192.0.2.1 (not 192.168.0.1, 127.0.0.1, 8.8.8.8.8, 999.1.1.1)"
    assert chain.parse("addresses")[1](text) == expected


def test_languages() -> None:
    romanian = "Acesta este un text scris în limba română, cu diacritice și fără greșeli."
    assert _reason("language", PROSE) == ""
    assert _reason("language", romanian) == "other"
    assert _reason("language:keep=en+ro", romanian) == ""
    assert _reason("language:least=0.99", "This is a text.") == "unsure"
    with raises(UsageError, "filter.invalid-value", "xx"):
        chain.parse("language:keep=en+xx")


def test_a_missing_library_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    from t5prep.tasks.filters import rules

    rules._identifier.cache_clear()
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    with raises(UsageError, "install.extra-missing"):
        chain.parse("language")
    rules._identifier.cache_clear()


def test_c4_reads_a_list_of_bad_words_again_for_the_next_run(tmp_path: Path) -> None:
    """A program may prepare twice, and the list may have grown in between."""
    words = tmp_path / "bad.txt"
    words.write_text("darn\n")
    assert _reason(f"c4:bad_words={words}", SENTENCES + "\nThat is a heck of a day.") == ""
    words.write_text("darn\nheck of\n")
    assert _reason(f"c4:bad_words={words}", SENTENCES + "\nThat is a heck of a day.") == "bad word"
