"""The digest of code: another one for code that does something else, the same for code that reads otherwise."""

from pathlib import Path

import pytest

from t5prep.prepare import code_digest
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
    assert code_digest.digest([CODE]) == code_digest.digest([DOCUMENTED])


@pytest.mark.parametrize(
    ("old", "new"), [('"a"', '"b"'), ("search", "match"), ("import re", "import regex as re"), ("bool(", "not (")]
)
def test_what_code_does_changes_the_digest(old: str, new: str) -> None:
    assert old in CODE
    assert code_digest.digest([CODE]) != code_digest.digest([CODE.replace(old, new)])


def test_two_sources_are_not_one() -> None:
    assert code_digest.digest(["x = 1", "y = 2"]) != code_digest.digest(["x = 1\ny = 2"])


def test_the_code_that_makes_tokens_of_rows_is_all_in_it() -> None:
    """Whatever makes rows of bytes, examples of rows and features of examples; nothing that only places them."""
    found = code_digest.modules(*code_digest._START, "t5prep.tasks.corpora.so_quality")
    assert found >= {
        f"t5prep.{name}"
        for name in (
            *(
                "prepare.block_tokenizer",
                "prepare.block_examples",
                "tasks.example_table",
                "tasks.filling",
                "tasks.template",
                "tasks.corpora.so_quality",
                "tasks.html",
                "tasks.example",
                "tasks.task",
            ),
            *(
                "reading.blocks",
                "reading.text_block",
                "reading.parallel_files",
                "reading.csv_rows",
                "reading.row_ends",
            ),
            *("tokens.featurizer", "tokens.newlines", "tokens.tokenizer", "tokens.truncation"),
        )
    }
    assert not any(name.startswith(("t5prep.dataset", "t5prep.sources", "t5prep.io")) for name in found)


def test_every_task_has_a_digest_of_its_own() -> None:
    digests = {code_digest.of_task(registry.get(name).code) for name in registry.names()}
    assert len(digests) == len(registry.names())


def test_a_kept_digest_is_the_same_and_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = registry.get("sst2").code
    made = code_digest.kept_of_task(tmp_path, code)
    assert made == code_digest.of_task(code)
    monkeypatch.setattr(code_digest, "of_task", lambda *code: "made again")
    assert code_digest.kept_of_task(tmp_path, code) == made
    assert code_digest.kept_of_task(tmp_path, code + b"#") == "made again"
    assert code_digest.kept_of_task(tmp_path, code, "t5prep.tasks.html") == "made again"
    (file,) = [path for path in (tmp_path / "code").iterdir() if path.read_text() == made]
    file.write_text("")  # by a power cut
    assert code_digest.kept_of_task(tmp_path, code) == "made again"
