"""Encode the distinct words of a block of texts once, where words can be encoded apart.

A model can be cut where none of its pieces goes on: before a space, unless a piece has a space behind another character. Which
models that holds for is decided where they are opened (`tokenizer`, `encoder_tokenizer`).
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from t5prep.tokens import ragged
from t5prep.tokens.ragged import Ragged

# White space that byte-level tokenizers treat otherwise than one space between words: by RE2, whose \s is only ASCII's.
# One space at the end is a piece of its own for them, as it is here, where it is a word without letters.
ODD_SPACE = r"^ |  |[^\S ]|[\x0b\x1c-\x1f\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]"
# What texts are cut at. A text that has it is not cut, nor one with the character that SentencePiece takes for a space.
BORDER = "\x1e"
ODD = f"[{BORDER}▁]"

Encode = Callable[[list[str]], Ragged]


def at_spaces(texts: pa.LargeStringArray, encode: Encode) -> Ragged:
    """Return the ids of texts whose words have nothing of the spaces between them."""
    return _by_words(pc.split_pattern(texts, " "), encode)


def before_spaces(texts: pa.LargeStringArray, encode: Encode, *, odd: str = ODD) -> Ragged:
    """Return the ids of texts whose words begin with the spaces before them; texts with a match of `odd` are not cut.

    A run of spaces belongs to the word after it.
    """
    is_odd = pc.match_substring_regex(texts, odd).to_numpy(zero_copy_only=False)
    plain = texts.filter(pa.array(~is_odd)) if is_odd.any() else texts
    bordered = pc.replace_substring_regex(plain, r"([^ ]) ", rf"\1{BORDER} ")
    cut = _by_words(pc.split_pattern(bordered, BORDER), encode)
    if not is_odd.any():
        return cut
    odd_lists = encode(texts.filter(pa.array(is_odd)).to_pylist())
    both = Ragged(
        np.concatenate([cut.ids, odd_lists.ids]), np.concatenate([cut.starts, cut.starts[-1] + odd_lists.starts[1:]])
    )
    places = np.empty(len(texts), np.int64)
    places[~is_odd], places[is_odd] = np.arange(len(cut.starts) - 1), np.arange(len(cut.starts) - 1, len(texts))
    return ragged.take(both, places)


def _by_words(words: pa.ListArray, encode: Encode) -> Ragged:
    """Return the ids of texts that are given as lists of words."""
    coded = pc.dictionary_encode(words.values)
    encoded_words = ragged.take(encode(coded.dictionary.to_pylist()), coded.indices.to_numpy().astype(np.int64))
    return Ragged(encoded_words.ids, encoded_words.starts[words.offsets.to_numpy()])
