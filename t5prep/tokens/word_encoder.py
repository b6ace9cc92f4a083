"""Encode many texts for an encoder by encoding each of their distinct words once.

The tokenizers of BERT and RoBERTa cut a text at its spaces before they look for pieces, so a word has the same ids
wherever it stands; and a block of texts has few distinct words.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from t5prep.tokens import ragged
from t5prep.tokens.ragged import Ragged

# White space that byte-level tokenizers treat otherwise than one space between words: by RE2, whose \s is only ASCII's.
# One space at the end is a piece of its own for them, as it is here, where it is a word without letters.
ODD_SPACE = r"^ |  |[^\S ]|[\x0b\x1c-\x1f\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]"


class WordEncoder:
    """Encode texts word by word. Threads may share it.

    `encode` returns the ids of texts without special tokens; `keeps_spaces` is true where a word's pieces begin with
    the space before it, as those of a byte-level tokenizer do.
    """

    def __init__(self, encode: Callable[[list[str]], Ragged], *, keeps_spaces: bool) -> None:
        self._encode, self._keeps_spaces = encode, keeps_spaces

    def __call__(self, texts: pa.LargeStringArray) -> Ragged:
        """Return the ids of the texts, one after the other; no text may be null."""
        if not self._keeps_spaces:
            return self._by_words(pc.split_pattern(texts, " "))
        odd = pc.match_substring_regex(texts, ODD_SPACE).to_numpy(zero_copy_only=False)
        plain = texts.filter(pa.array(~odd)) if odd.any() else texts
        cut = self._by_words(pc.split_pattern(pc.replace_substring(plain, " ", "\n "), "\n"))
        if not odd.any():
            return cut
        whole = self._encode(texts.filter(pa.array(odd)).to_pylist())
        both = Ragged(
            np.concatenate([cut.ids, whole.ids]), np.concatenate([cut.starts, cut.starts[-1] + whole.starts[1:]])
        )
        places = np.empty(len(texts), np.int64)
        places[~odd], places[odd] = np.arange(len(cut.starts) - 1), np.arange(len(cut.starts) - 1, len(texts))
        return ragged.taken(both, places)

    def _by_words(self, words: pa.ListArray) -> Ragged:
        """Return the ids of texts that are given as lists of words."""
        coded = pc.dictionary_encode(words.values)
        each = ragged.taken(self._encode(coded.dictionary.to_pylist()), coded.indices.to_numpy().astype(np.int64))
        return Ragged(each.ids, each.starts[words.offsets.to_numpy()])


def keeps_spaces(whole: Mapping[str, Any]) -> bool | None:
    """Return how a `tokenizer.json` cuts texts into words, as `WordEncoder` says it; None where it may cut otherwise."""
    if not all(one["special"] for one in whole["added_tokens"]):
        return None  # a token of the user's own may have spaces inside
    steps = [(whole.get(part) or {}).get("type") for part in ("normalizer", "pre_tokenizer", "model")]
    if steps == ["BertNormalizer", "BertPreTokenizer", "WordPiece"]:
        return False
    if steps == [None, "ByteLevel", "BPE"] and whole["pre_tokenizer"].get("use_regex", True):
        return None if whole["model"].get("dropout") else True
    return None
