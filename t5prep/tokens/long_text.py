"""The head and the tail of a long text, tokenized without its middle, and equal to tokenizing all of it.

Pieces of a SentencePiece unigram model never cross a space, so the best segmentation of a text is that of its words,
one after the other. The head of a text is therefore exactly the head of its ids. The tail would be too, if the scores
were exact: SentencePiece adds them up as 32-bit floats from the start of the text, so far into it a near tie between
two segmentations of one word (`--- -` and `- ---`) can fall the other way. So each word of the tail must have a second
best segmentation that is worse by more than rounding can hide (`_certain`); a tail with a doubtful word is given up,
and the text is tokenized whole.
"""

import itertools
import re
from typing import NamedTuple
from unicodedata import category

import numpy as np

from t5prep.tokens import model_proto
from t5prep.tokens.tokenizer import Tokenizer

# A space between two visible ASCII characters: no normalization rule of nmt_nfkc reaches across it (a test tries all).
_SAFE = re.compile(r"[!-~][ \n](?=[!-~])")
# Where an end is cut at first: English text has about 4.5 characters a token, code 3. Further tries take more.
_CHARACTERS_PER_TOKEN = 4.4
_GROWTH = (1.0, 1.5, 3.0)
# Above so many characters a token, the ends of a text are found sooner than all of it is tokenized.
_WORTHWHILE = 6
# SentencePiece scores a character that it has no piece for at its lowest score minus 10 (unigram_model.cc, kUnkPenalty).
_UNK_PENALTY = 10.0
# NFKC makes at most 18 characters of one (U+FDFA).
_NFKC_GROWTH = 18
_LONGEST_WORD = 192
# The head is at least this many tokens: it says how many a whole text has.
_SAMPLED = 128
# What it costs to learn a word, in characters that could be tokenized instead. It is paid from what was saved before,
# so that a corpus whose words never come again is tokenized whole after the first seconds.
_LEARNING = 800
_CREDIT = 8_000_000
_REMEMBERED_WORDS = 1 << 17


class Ends(NamedTuple):
    """The first and the last ids of a text that has about `tokens` of them: `int32[head]`, `int32[tail]`.

    `tail` is None where all of the text has to be tokenized.
    """

    head: np.ndarray
    tail: np.ndarray | None
    tokens: int


class _Word(NamedTuple):
    """A word by itself: its ids (the bytes of int32[length], which are joined faster than arrays), and by how much they
    beat the second best for each addition that can be wrong.
    """

    ids: bytes
    margin: float


_NO_IDS = np.zeros(0, np.int32)
_DOUBTFUL = _Word(b"", 0.0)
_BETWEEN_BLANKS = _Word(b"", float("inf"))


class EndsEncoder:
    """Tokenizes the ends of texts with one tokenizer. Models that it cannot prove equal are tokenized whole."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        processor = tokenizer.processor
        pieces = [processor.id_to_piece(i) for i in range(tokenizer.vocab_size)]
        facts = tokenizer.facts
        self.provable = (
            facts.model_type == model_proto.UNIGRAM
            and facts.normalizer == "nmt_nfkc"
            and facts.add_dummy_prefix
            and facts.escape_whitespaces
            and not facts.whitespace_as_suffix
            and not facts.byte_fallback
            and not any("▁" in piece[1:] for piece in pieces)
            and not any(
                processor.is_control(i) and i not in (tokenizer.pad_id, tokenizer.eos_id) for i in range(len(pieces))
            )
        )
        plain = [i for i in range(len(pieces)) if not processor.is_control(i) and not processor.is_unknown(i)]
        lowest = min((processor.get_score(i) for i in plain), default=0.0)
        self._scores = [processor.get_score(i) for i in range(len(pieces))]
        self._scores[tokenizer.unk_id] = lowest - _UNK_PENALTY
        # What each byte of UTF-8 can cost at most: the piece of that one character, or unknown.
        unknown = _UNK_PENALTY - lowest
        ids = [processor.piece_to_id(chr(byte)) for byte in range(128)]
        ascii_cost = [unknown if i == tokenizer.unk_id else -self._scores[i] for i in ids]
        space = processor.piece_to_id("▁")
        for blank in b" \n\r\t":
            ascii_cost[blank] = unknown if space == tokenizer.unk_id else -self._scores[space]
        lead, continuation = _NFKC_GROWTH * unknown, 0.0
        self._byte_cost = np.array(ascii_cost + [continuation] * 64 + [lead] * 64)
        self._cheapest = min((-self._scores[i] for i in plain), default=1.0)
        self._dearest, self._dearest_other = max(ascii_cost), lead
        self._known: dict[str, _Word] = {"": _BETWEEN_BLANKS}
        # How much less than its characters one by one each of these words costs.
        self._saved: dict[str, float] = {}
        self._credit = _CREDIT

    def worthwhile(self, characters: int, wanted: int) -> bool:
        """Whether a text is so long that it pays to tokenize only `wanted` ids at its ends, if that can be done."""
        return characters > _WORTHWHILE * wanted + 512 and self.provable

    def encode(self, text: str, *, head: int, tail: int) -> Ends | None:
        """The first `head` and the last `tail` ids, without EOS, of a text that is longer than both.

        Without a tail where it is in doubt; None where the text has no place to cut it at.
        """
        begin = self._head(text, max(head, _SAMPLED))
        if begin is None:
            return None
        # The same whether the tail is found or not: what words were met before must not show in any count.
        tokens = max(head + tail + 1, round(len(text) * len(begin[0]) / begin[1]))
        end = self._tail(text, tail)
        # More ids than were asked for, and a middle besides: the text is certainly longer than both ends.
        if end and begin[1] < end[1] and len(begin[0]) + len(end[0]) > head + tail:
            self._credit = min(_CREDIT, self._credit + (end[1] - begin[1]) // 2)
            return Ends(begin[0][:head], end[0][len(end[0]) - tail :], tokens)
        return Ends(begin[0][:head], None, tokens)

    def _head(self, text: str, wanted: int) -> tuple[np.ndarray, int] | None:
        """At least `wanted` ids of the head and how many characters they cover; None if the middle is reached."""
        for growth in _GROWTH:
            cut = _SAFE.search(text, int(wanted * _CHARACTERS_PER_TOKEN * growth))
            if not cut:
                return None
            ids = self._tokenizer.encode_array(text[: cut.end()])
            if len(ids) >= wanted:
                return ids, cut.end()
        return None

    def _tail(self, text: str, wanted: int) -> tuple[np.ndarray, int] | None:
        """At least `wanted` certain ids of the tail and where they begin; None if the middle or a doubt is reached."""
        if not wanted:
            return _NO_IDS, len(text)
        for growth in _GROWTH:
            cut = _SAFE.search(text, max(0, len(text) - int(wanted * _CHARACTERS_PER_TOKEN * growth)))
            if not cut:
                return None
            spelled = _split(text[cut.end() :])
            if (ids := self._all(text, spelled, wanted)) is not None:
                return ids, cut.end()
            found = self._last(text, spelled, wanted)
            if found is None or len(found[0]) >= wanted:
                return found
        return None

    def _all(self, text: str, spelled: list[str], wanted: int) -> np.ndarray | None:
        """The ids of these words, if all are known, certain, and enough: most are, and this takes no loop."""
        try:
            ids, margins = zip(*map(self._known.__getitem__, spelled), strict=True)
        except KeyError:
            return None
        joined = np.frombuffer(b"".join(ids), np.int32)
        return joined if len(joined) >= wanted and self._certain(text, min(margins)) else None

    def _last(self, text: str, spelled: list[str], wanted: int) -> tuple[np.ndarray, int] | None:
        """The tail that is the last few of these words, as many as are enough; fewer ids where all of them are not enough.

        They are looked up from the last one backwards: most texts with a doubt cost a few look-ups.
        """
        words: list[_Word] = []
        count, begin = 0, len(text)
        for one in reversed(spelled):
            begin -= len(one)
            word = self._known.get(one)
            if word is None:
                if self._credit < _LEARNING:
                    return None
                self._credit -= _LEARNING
                word = self._know(one)
            if not word.margin:
                return None
            words.append(word)
            count += len(word.ids) // 4
            if one and count >= wanted and _SAFE.match(text, begin - 2):
                if not self._certain(text, min([word.margin for word in words])):
                    return None
                return np.frombuffer(b"".join([word.ids for word in reversed(words)]), np.int32), begin
            begin -= 1  # the blank before it
        return _NO_IDS, begin

    def _certain(self, text: str, margin: float) -> bool:
        """Whether rounding in the middle of `text` cannot have changed words whose least margin is `margin`.

        A path of k pieces makes k additions, each wrong by at most half a unit in the last place of the running sum, and
        the sum is at most what the text costs character by character, less what its well-known words save.
        """
        # First as if each were the dearest: it takes no look at them, and is enough for most texts.
        others = 0 if text.isascii() else len(text.encode("utf-8", "surrogatepass")) - len(text)
        if margin > _unit(len(text) * self._dearest + others * self._dearest_other):
            return True
        most = self._characters(text)
        if margin > _unit(most):
            return True
        if margin <= _unit(most / 4):  # words save a factor of about three: not worth counting
            return False
        saved = sum(map(self._saved.get, _split(text), itertools.repeat(0.0)))
        return margin > _unit(most - saved)

    def _know(self, spelled: str) -> _Word:
        """A word that was not met yet, or not lately."""
        # What begins or ends with a mark or a format character may be normalized together with its neighbours.
        if len(spelled) > _LONGEST_WORD or {category(spelled[0])[0], category(spelled[-1])[0]} & set("MCZ"):
            return _DOUBTFUL
        paths: list[list[int]] = self._tokenizer.processor.nbest_encode(spelled, nbest_size=2)
        costs = [-sum(map(self._scores.__getitem__, path)) for path in paths]
        if len(costs) == 1:
            margin = float("inf")
        else:
            # A rival path costs at least as much as the second, and has at most that many of the cheapest pieces, and no
            # more pieces than characters, the space before the word counted.
            characters = 1 + len(spelled) * (1 if spelled.isascii() else _NFKC_GROWTH)
            additions = (len(paths[0]) + min(costs[1] / self._cheapest, characters)) / 2
            margin = (costs[1] - costs[0]) / additions
        if len(self._known) >= _REMEMBERED_WORDS:
            self._known = {"": _BETWEEN_BLANKS}
            self._saved.clear()
        word = self._known[spelled] = _Word(self._tokenizer.encode_array(spelled).tobytes(), margin)
        self._saved[spelled] = max(0.0, self._characters(spelled) - costs[0])
        return word

    def _characters(self, text: str) -> float:
        """What a text costs at most: its characters one by one."""
        encoded = np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8)
        return float(np.bincount(encoded, minlength=256) @ self._byte_cost)


def _split(text: str) -> list[str]:
    """The words of a text, and an empty one between two blanks: each blank is one character."""
    for blank in "\n\t\r":
        text = text.replace(blank, " ")
    return text.split(" ")


def _unit(total: float) -> float:
    """A unit in the last place of a 32-bit float as large as `total`."""
    return float(np.spacing(np.float32(total)))
