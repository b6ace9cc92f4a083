"""The head and the tail of a long text, tokenized without its middle, and equal to tokenizing all of it.

Pieces of a SentencePiece unigram model never cross a space, so the best segmentation of a text is that of its words,
one after the other. The head of a text is therefore exactly the head of its ids. The tail would be too, if the scores
were exact: SentencePiece adds them up as 32-bit floats from the start of the text, so far into it a near tie between
two segmentations of one word (`--- -` and `- ---`) can fall the other way. So each word of the tail must have a second
best segmentation that is worse by more than rounding can hide (`_certain`); a tail with a doubtful word is given up,
and the text is tokenized whole.
"""

import re
from typing import NamedTuple
from unicodedata import category

import numpy as np

from t5prep import modelproto
from t5prep.tokenizer import Tokenizer

# A space between two visible ASCII characters: no normalization rule of nmt_nfkc reaches across it (a test tries all).
_SAFE = re.compile(r"[!-~][ \n](?=[!-~])")
_WORD = re.compile(r"[^ \n\t\r]+")
# Where the head is cut at first; English text has about 4.5 characters a token, code 3. Further tries take more.
_CHARACTERS_PER_TOKEN = 4
_GROWTH = (1.0, 1.5, 3.0)
# SentencePiece scores a character that it has no piece for at its lowest score minus 10 (unigram_model.cc, kUnkPenalty).
_UNK_PENALTY = 10.0
# NFKC makes at most 18 characters of one (U+FDFA).
_NFKC_GROWTH = 18
_LONGEST_WORD = 48
_REMEMBERED_WORDS = 1 << 17


class Ends(NamedTuple):
    """The first and the last ids of a text that has about `tokens` of them."""

    head: list[int]
    tail: list[int]
    tokens: int


class _Word(NamedTuple):
    """A word by itself: its ids, by how much they beat the second best for each addition that can be wrong, and how
    much less than its characters one by one they cost.
    """

    ids: list[int]
    margin: float
    saved: float


_DOUBTFUL = _Word([], 0.0, 0.0)


class EndsEncoder:
    """Tokenizes the ends of texts with one tokenizer. Models that it cannot prove equal are tokenized whole."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        processor = tokenizer.processor
        pieces = [processor.id_to_piece(i) for i in range(tokenizer.vocab_size)]
        facts = tokenizer.facts
        self.provable = (
            facts.model_type == modelproto.UNIGRAM
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
        self._known: dict[str, _Word] = {}

    def worthwhile(self, characters: int, wanted: int) -> bool:
        """Whether a text is so long that it pays to tokenize only `wanted` ids at its ends, if that can be done."""
        return characters > _CHARACTERS_PER_TOKEN * wanted + 512 and self.provable

    def encode(self, text: str, *, head: int, tail: int) -> Ends | None:
        """The first `head` and the last `tail` ids, without EOS; None where all of the text has to be tokenized."""
        end = self._tail(text, tail)  # first, because it is where doubts are found
        begin = self._head(text, head) if end else None
        # More ids than were asked for, and a middle besides: the text is certainly longer than both ends.
        if begin and end and begin[1] < end[1] and len(begin[0]) + len(end[0]) > head + tail:
            return _joined(begin, end, length=len(text), head=head, tail=tail)
        return None

    def _head(self, text: str, wanted: int) -> tuple[list[int], int] | None:
        """At least `wanted` ids of the head and how many characters they cover; None if the middle is reached."""
        if not wanted:
            return [], 0
        for growth in _GROWTH:
            cut = _SAFE.search(text, int(wanted * _CHARACTERS_PER_TOKEN * growth))
            if not cut:
                return None
            ids = self._tokenizer.encode(text[: cut.end()])
            if len(ids) >= wanted:
                return ids, cut.end()
        return None

    def _tail(self, text: str, wanted: int) -> tuple[list[int], int] | None:
        """At least `wanted` certain ids of the tail and where they begin; None if the middle or a doubt is reached.

        The words are looked up from the last one backwards: most texts with a doubt cost a few look-ups.
        """
        if not wanted:
            return [], len(text)
        for growth in _GROWTH:
            cut = _SAFE.search(text, max(0, len(text) - int(wanted * _CHARACTERS_PER_TOKEN * growth)))
            if not cut:
                return None
            words: list[_Word] = []
            count = 0
            matches = list(_WORD.finditer(text, cut.end()))
            for match in reversed(matches):
                spelled = match.group()
                word = self._known.get(spelled) or self._know(spelled)
                if not word.margin:
                    return None
                words.append(word)
                count += len(word.ids)
                if count >= wanted and _SAFE.match(text, match.start() - 2):
                    if not self._certain(text, min(word.margin for word in words)):
                        return None
                    return [token for word in reversed(words) for token in word.ids], match.start()
        return None

    def _certain(self, text: str, margin: float) -> bool:
        """Whether rounding in the middle of `text` cannot have changed words whose least margin is `margin`.

        A path of k pieces makes k additions, each wrong by at most half a unit in the last place of the running sum, and
        the sum is at most what the text costs character by character, less what its well-known words save.
        """
        encoded = np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8)
        most = float(np.bincount(encoded, minlength=256) @ self._byte_cost)
        if margin > _unit(most):
            return True
        if margin <= _unit(most / 4):  # words save a factor of about three: not worth counting
            return False
        saved = [word.saved for spelled in _WORD.findall(text) if (word := self._known.get(spelled))]
        return margin > _unit(most - sum(saved))

    def _know(self, spelled: str) -> _Word:
        """A word that was not met yet, or not lately."""
        # What begins or ends with a mark or a format character may be normalized together with its neighbours.
        if len(spelled) > _LONGEST_WORD or {category(spelled[0])[0], category(spelled[-1])[0]} & set("MCZ"):
            return _DOUBTFUL
        paths: list[list[int]] = self._tokenizer.processor.nbest_encode(spelled, nbest_size=2)
        costs = [-sum(map(self._scores.__getitem__, path)) for path in paths]
        characters = np.bincount(np.frombuffer(spelled.encode(), np.uint8), minlength=256)
        if len(costs) == 1:
            margin = float("inf")
        else:
            # A rival path costs at most as much as the second, so it has at most that many of the cheapest pieces.
            additions = (len(paths[0]) + costs[1] / self._cheapest) / 2
            margin = (costs[1] - costs[0]) / additions
        if len(self._known) >= _REMEMBERED_WORDS:
            self._known.clear()
        ids = self._tokenizer.encode(spelled)
        word = self._known[spelled] = _Word(ids, margin, max(0.0, float(characters @ self._byte_cost) - costs[0]))
        return word


def _unit(total: float) -> float:
    """A unit in the last place of a 32-bit float as large as `total`."""
    return float(np.spacing(np.float32(total)))


def _joined(begin: tuple[list[int], int], end: tuple[list[int], int], *, length: int, head: int, tail: int) -> Ends:
    """Both ends, and about how many tokens the text has, judged by how many its ends have for their characters."""
    (first, until), (last, since) = begin, end
    known = len(first) + len(last)
    middle = (since - until) * known / (until + length - since)
    return Ends(first[:head], last[len(last) - tail :], known + round(middle))
