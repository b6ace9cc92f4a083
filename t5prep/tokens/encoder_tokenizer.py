"""Encode and decode text for models with only an encoder (BERT, RoBERTa, ...) by their `tokenizer.json`.

The work is done by the `tokenizers` library, as in `transformers`. One thing differs: text that spells a special token,
such as `[SEP]`, is plain text here.
"""

import hashlib
import itertools
import json
import os
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from t5prep.errors import TokenizerError
from t5prep.tokens import encoder_json, ragged
from t5prep.tokens.ragged import Ragged
from t5prep.tokens.tokenizer import Tokenizer
from t5prep.tokens.word_encoder import WordEncoder, keeps_spaces

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
