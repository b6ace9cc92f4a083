"""Encode and decode text for models with only an encoder (BERT, RoBERTa, ...) by their `tokenizer.json`.

The work is done by the `tokenizers` library, as in `transformers`, once for each distinct word of a block. One thing
differs: text that spells a special token, such as `[SEP]`, is plain text here.
"""

import hashlib
import itertools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from t5prep.errors import TokenizerError
from t5prep.tokens import encoder_json, ragged
from t5prep.tokens.ragged import Ragged
from t5prep.tokens.tokenizer import Tokenizer

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


# Workers are processes already, one for each core.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


class EncoderTokenizer(Tokenizer):
    """Encode text to ids and decode it, with the content of a `tokenizer.json`.

    `eos_id` is the id of the token after a text (`[SEP]`, `</s>`). Raises TokenizerError where the content is damaged.
    """

    file_name = "tokenizer.json"
    is_encoders = True
    is_bytes = False
    slow = ""

    def __init__(self, model: bytes, *, name: str) -> None:
        from tokenizers import Tokenizer as FastTokenizer

        try:
            described = encoder_json.parse(model)
            self._fast = FastTokenizer.from_str(model.decode())
        except Exception as error:  # the library raises Exception itself
            raise TokenizerError(
                f"{name} is not a tokenizer of an encoder ({str(error).splitlines()[0][:80]}): fetch it again."
            ) from error
        self._fast.no_padding()
        self._fast.no_truncation()
        self._fast.encode_special_tokens = True
        self.model = model
        self.name = name
        self.sha256 = hashlib.sha256(model).hexdigest()
        self.frame = described.frame
        self.pad_id, self.unk_id, self.eos_id = described.pad_id, described.unk_id, self.frame.last[-1]
        self.vocab_size = self.size = self.padded_size = self._fast.get_vocab_size()
        self._special = described.special
        by_space = keeps_spaces(json.loads(model))
        self._by_words = None if by_space is None else WordEncoder(self._encode_whole, keeps_spaces=by_space)

    def sentinel(self, number: int) -> int:
        """Return -1, which is not an id: an encoder's vocabulary has no sentinels."""
        return -1

    def encode_block(self, texts: list[str] | pa.LargeStringArray) -> Ragged:
        """Return the ids of many texts without special tokens, one after the other; no text may be null."""
        if self._by_words and isinstance(texts, pa.LargeStringArray):
            return self._by_words(texts)
        return self._encode_whole(texts if isinstance(texts, list) else texts.to_pylist())

    def _encode_whole(self, texts: list[str]) -> Ragged:
        """Return the ids of many texts, each of which goes through the `tokenizers` library."""
        encoded = [one.ids for one in self._fast.encode_batch_fast(texts, add_special_tokens=False)]
        starts = ragged.begins([len(ids) for ids in encoded])
        return Ragged(np.fromiter(itertools.chain.from_iterable(encoded), np.int32, int(starts[-1])), starts)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids. Special tokens are written out, but padding is left out."""
        out: list[str] = []
        for special, group in itertools.groupby(ids, key=self.special):
            plain = list(group)
            if special is None:
                out.append(self._fast.decode(plain))
            elif plain[0] != self.pad_id:
                out += [special] * len(plain)
        return " ".join(out)

    def special(self, token: int) -> str | None:
        """Return how a special token is written, or None for a piece of text."""
        return self._special.get(token) or (None if 0 <= token < self.size else f"<unused_{token}>")

    def piece(self, token: int) -> str:
        """Return one token as it is written in the vocabulary: `##ing`, `Ġthe`, `[SEP]`."""
        return self.special(token) or str(self._fast.id_to_token(token))
