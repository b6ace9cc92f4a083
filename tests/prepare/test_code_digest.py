"""The digest of code: another one for code that does something else, the same for code that reads otherwise."""

from pathlib import Path

import pytest

from t5prep.prepare import token_cache
from t5prep.tasks import registry

CODE = """
import re

class Rule:
    word: str = "a"

    def holds(self, text: str) -> bool:
        return bool(re.search(self.word, text))
"""
DOCUMENTED = """
'''A rule.'''
import re  # the standard library's


class Rule:
    '''Hold a word.'''

    word: str = ("a")

    def holds(self, text: str) -> bool:
        '''Return whether the text has the word.'''
        # anywhere in it
        return bool(
            re.search(self.word, text)
        )
"""


def test_comments_docstrings_and_layout_change_nothing() -> None:
    assert token_cache.digest_of_code([CODE]) == token_cache.digest_of_code([DOCUMENTED])


@pytest.mark.parametrize(
    ("old", "new"), [('"a"', '"b"'), ("search", "match"), ("import re", "import regex as re"), ("bool(", "not (")]
)
def test_what_code_does_changes_the_digest(old: str, new: str) -> None:
    assert old in CODE
    assert token_cache.digest_of_code([CODE]) != token_cache.digest_of_code([CODE.replace(old, new)])


def test_two_sources_are_not_one() -> None:
    assert token_cache.digest_of_code(["x = 1", "y = 2"]) != token_cache.digest_of_code(["x = 1\ny = 2"])


def test_the_code_that_makes_tokens_of_rows_is_all_in_it() -> None:
    """Whatever makes rows of bytes, examples of rows and features of examples; nothing that only places them."""
    found = token_cache.modules(*token_cache._START, "t5prep.tasks.corpora.so_quality")
    assert found >= {
        f"t5prep.{name}"
        for name in (
            *(
                "prepare.block_tokenizer",
                "tasks.example_table",
                "tasks.corpora.so_quality",
                "tasks.html",
                "tasks.example",
                "tasks.task",
            ),
            *(
                "reading.blocks",
                "reading.text_rows",
            ),
            *(
                "tokens.featurizer",
                "tokens.tokenizer",
            ),
        )
    }
    assert not any(name.startswith(("t5prep.dataset", "t5prep.sources", "t5prep.io")) for name in found)


def test_every_task_has_a_digest_of_its_own() -> None:
    digests = {token_cache.of_task(registry.get(name).code) for name in registry.names()}
    assert len(digests) == len(registry.names())


def test_a_kept_digest_is_the_same_and_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = registry.get("sst2").code
    made = token_cache.kept_of_task(tmp_path, code)
    assert made == token_cache.of_task(code)
    monkeypatch.setattr(token_cache, "of_task", lambda *code: "made again")
    assert token_cache.kept_of_task(tmp_path, code) == made
    assert token_cache.kept_of_task(tmp_path, code + b"#") == "made again"
    assert token_cache.kept_of_task(tmp_path, code, "t5prep.tasks.html") == "made again"
    (file,) = [path for path in (tmp_path / "code").iterdir() if path.read_text() == made]
    file.write_text("")  # by a power cut
    assert token_cache.kept_of_task(tmp_path, code) == "made again"
