"""Encode each distinct word of a block of texts once, for models whose words can be encoded separately.

A text can be cut before a space if no piece has a space after another character. The modules that open a model check this
condition (`tokenizer`, `encoder_tokenizer`). Figures: docs/decisions/026-encode-each-distinct-word-once.md.
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from t5prep.tokens import ragged
from t5prep.tokens.ragged import Ragged

# White space that byte-level tokenizers treat differently from a single space between words. RE2's \s is only ASCII, so others
# are listed. A single space at the end of a text is a separate piece for these tokenizers; here it is a word without letters,
# which gives the same.
IRREGULAR_SPACE = (
    r"^ |  |[^\S ]|[\x0b\x1c-\x1f\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]"
)
# Marks the positions where texts are cut. A text that contains this character, or SentencePiece's character for a space, is not
# cut.
BORDER = "\x1e"
HAS_BORDER = f"[{BORDER}▁]"

Encode = Callable[[list[str]], Ragged]


def at_spaces(texts: pa.LargeStringArray, encode: Encode) -> Ragged:
    """Return the ids of texts for a model that drops the spaces between words. encode: encodes a list of texts."""
    return _by_words(pc.split_pattern(texts, " "), encode)


def before_spaces(texts: pa.LargeStringArray, encode: Encode, *, irregular: str = HAS_BORDER) -> Ragged:
    """Return the ids of texts for a model whose words begin with the spaces before them. encode: encodes a list of texts.

    A run of spaces belongs to the word after it. Texts that match the pattern `irregular` are encoded as a whole.
    """
    is_irregular = pc.match_substring_regex(texts, irregular).to_numpy(zero_copy_only=False)
    plain = texts.filter(pa.array(~is_irregular)) if is_irregular.any() else texts
    bordered = pc.replace_substring_regex(plain, r"([^ ]) ", rf"\1{BORDER} ")
    cut = _by_words(pc.split_pattern(bordered, BORDER), encode)
    if not is_irregular.any():
        return cut
    irregular_lists = encode(texts.filter(pa.array(is_irregular)).to_pylist())
    both = Ragged(
        np.concatenate([cut.ids, irregular_lists.ids]),
        np.concatenate([cut.starts, cut.starts[-1] + irregular_lists.starts[1:]]),
    )
    places = np.empty(len(texts), np.int64)
    places[~is_irregular], places[is_irregular] = (
        np.arange(len(cut.starts) - 1),
        np.arange(len(cut.starts) - 1, len(texts)),
    )
    return ragged.take(both, places)


def _by_words(words: pa.ListArray, encode: Encode) -> Ragged:
    """Return the ids of texts from their lists of words. Each distinct word is encoded once."""
    coded = pc.dictionary_encode(words.values)
    encoded_words = ragged.take(encode(coded.dictionary.to_pylist()), coded.indices.to_numpy().astype(np.int64))
    return Ragged(encoded_words.ids, encoded_words.starts[words.offsets.to_numpy()])
