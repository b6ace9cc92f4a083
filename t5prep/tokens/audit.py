"""Measure the losses of a tokenizer on a corpus: unknown tokens, lost characters, changed texts, other ids in transformers.

T5's vocabulary has no piece for `{`, `}`, `<`, `~`, a backslash, a caret or a newline, and gives no warning. A model then learns
from text that differs from the given code or markup.
"""

import collections
import dataclasses
import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence

from t5prep.io.progress import number_of
from t5prep.json_values import JSON
from t5prep.tokens.encoder_tokenizer import EncoderTokenizer, failures, read_fast
from t5prep.tokens.tokenizer import Tokenizer

EXAMPLES = 5
EXCERPT = 40
BATCH = 1000

# A function from texts to their ids, without special tokens around them.
Encode = Callable[[list[str]], Sequence[Sequence[int]]]

_RUN = re.compile(r"  +")
_SPECIAL = re.compile(r"</?s>|<pad>|<unk>|<mask>|<extra_id_\d+>|<0x[0-9A-F]{2}>|\[(PAD|UNK|CLS|SEP|MASK)\]")


@dataclasses.dataclass
class LostCharacter:
    """A character that is lost: its number of occurrences, its replacement (`<unk>`, a space, other text), and an excerpt."""

    character: str
    count: int
    becomes: str
    example: str

    @property
    def name(self) -> str:
        """Return the character in a readable form: `{`, `newline`, `U+200B ZERO WIDTH SPACE`."""
        plain = {"\n": "newline", "\t": "tab", "\r": "carriage return", "  ": "run of spaces"}
        if self.character in plain:
            return plain[self.character]
        code = f"U+{ord(self.character):04X} {unicodedata.name(self.character, '')}".strip()
        return f"{self.character} {code}" if self.character.isprintable() and not self.character.isspace() else code


@dataclasses.dataclass
class Agreement:
    """Counts of texts by how the ids of transformers compare with those of a dataset.

    `ties`: segmentations with the same probability, within the rounding of SentencePiece's float32. `spelled`: the text contains
    the spelling of a special token, which transformers encodes as the token. `unexplained`: any other difference (`class_steps`
    lists the known ones). `examples`: the first of these texts.
    """

    texts: int = 0
    equal: int = 0
    ties: int = 0
    spelled: int = 0
    unexplained: int = 0
    examples: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Report:
    """The results of a tokenizer on a corpus.

    `returned` counts the texts that decode to themselves, `changed` those that differ even if white space is ignored. `agreements`
    compare the ids with those of transformers, by the file that transformers uses (`loading.as_in_transformers`).
    """

    texts: int = 0
    characters: int = 0
    words: int = 0
    tokens: int = 0
    unknown: int = 0
    returned: int = 0
    changed: int = 0
    lost: list[LostCharacter] = dataclasses.field(default_factory=list)
    agreements: dict[str, Agreement] = dataclasses.field(default_factory=dict)

    @property
    def unk_rate(self) -> float:
        """Return the share of tokens that are unknown."""
        return self.unknown / max(self.tokens, 1)

    @property
    def tokens_per_word(self) -> float:
        """Return the number of tokens per word; words are separated by white space."""
        return self.tokens / max(self.words, 1)

    @property
    def lost_share(self) -> float:
        """Return the share of characters that are lost: unknown, removed, or changed into another."""
        return sum(loss.count for loss in self.lost) / max(self.characters, 1)

    def count_of(self, characters: str, *, becomes: str = "") -> int:
        """Return the number of lost occurrences of `characters`; with `becomes`, only of those that became this text."""
        return sum(loss.count for loss in self.lost if loss.character in characters and becomes in loss.becomes)

    def to_json(self) -> dict[str, JSON]:
        """Return all fields with the rates and the advice, as JSON values."""
        rates = {"unk_rate": self.unk_rate, "tokens_per_word": self.tokens_per_word, "lost_share": self.lost_share}
        losses = [{"name": loss.name, **dataclasses.asdict(loss)} for loss in self.lost]
        return dataclasses.asdict(self) | rates | {"lost": losses, "advice": advice(self)}


def examine(
    texts: Iterable[str], tokenizer: Tokenizer, *, in_transformers: Mapping[str, Encode] | None = None
) -> Report:
    """Tokenize texts, and return the report. in_transformers: encoders as in transformers, by a description of each."""
    encoders = in_transformers or {}
    report = Report(agreements={source: Agreement() for source in encoders})
    characters: collections.Counter[str] = collections.Counter()
    first_texts: dict[str, str] = {}
    ahead = iter(texts)
    while batch := list(itertools.islice(ahead, BATCH)):
        for text, ids in zip(batch, encoded := _encoded(batch, tokenizer), strict=True):
            report.words += len(text.split())
            report.tokens += len(ids)
            counts = collections.Counter(text)
            # The key of two spaces counts the spaces of runs beyond their first: SentencePiece may make a run one space.
            if "  " in text and (spaces := sum(len(run) - 1 for run in _RUN.findall(text.strip()))):
                counts["  "] = spaces
            characters.update(counts)
            for character in counts.keys() - first_texts.keys():
                first_texts[character] = text
            report.unknown += ids.count(tokenizer.unk_id)
            decoded = _decoded(ids, tokenizer)
            report.returned += decoded == text
            report.changed += decoded.split() != text.split()
        for source, encode in encoders.items():
            _compare(batch, encoded, encode(batch), tokenizer, report.agreements[source])
        report.texts += len(batch)
    spaces = characters.pop("  ", 0)
    report.characters = characters.total()
    if spaces and _normalized("a  b", tokenizer) == _normalized("a b", tokenizer):
        report.lost.append(LostCharacter("  ", spaces, "one space", _excerpt(first_texts["  "], "  ")))
    for character, count in characters.items():
        if (becomes := _becomes(character, tokenizer)) != character:
            report.lost.append(LostCharacter(character, count, becomes, _excerpt(first_texts[character], character)))
    report.lost.sort(key=lambda loss: (-loss.count, loss.character))
    return report


def advice(report: Report) -> list[str]:
    """Return a sentence for each problem in the report, with the option that solves it."""
    sentences = []
    newlines = report.count_of("\n")
    if newlines > report.texts / 10:
        sentences.append(f"{newlines:,} newlines are lost. Keep them: t5prep prepare TASK ... --keep-newlines")
    braces = report.count_of("<>", becomes="<unk>")
    if braces > report.texts / 10:
        sentences.append(f"{braces:,} angle brackets are lost. If they are markup, leave it out: --html strip")
    if report.unk_rate > 0.001:
        sentences.append(
            f"{report.unk_rate:.2%} of all tokens are unknown. Train a vocabulary that has these characters: "
            "t5prep tokenizer train --byte-fallback ..."
        )
    if report.tokens_per_word > 2:
        sentences.append(
            f"{report.tokens_per_word:.1f} tokens per word: this vocabulary was made for other text. "
            "Train one for yours, or use a model whose tokenizer knows your language."
        )
    for source, agreement in report.agreements.items():
        if agreement.unexplained:
            sentences.append(
                f"By {source}, {number_of(agreement.unexplained, 'text')} would get other ids, for example"
                f" {agreement.examples[0]!r}. Train and predict with the same tokenizer, this one or that."
            )
    return sentences


# The audit calls SentencePiece directly, so that it also detects differences of the encoder in C.


def _encoded(texts: list[str], tokenizer: Tokenizer) -> list[list[int]]:
    if isinstance(tokenizer, EncoderTokenizer):
        return [ids.tolist() for ids in tokenizer.encode_all(texts)]
    ids: list[list[int]] = tokenizer.processor.encode(texts)
    return ids


def _decoded(ids: list[int], tokenizer: Tokenizer) -> str:
    return tokenizer.decode(ids) if isinstance(tokenizer, EncoderTokenizer) else str(tokenizer.processor.decode(ids))


def _normalized(text: str, tokenizer: Tokenizer) -> str:
    """Return the normalized text, before it is cut into pieces; for a tokenizer.json, the text decoded from its ids."""
    if isinstance(tokenizer, EncoderTokenizer):
        return tokenizer.decode(tokenizer.encode(text))
    return str(tokenizer.processor.normalize(text))


def _becomes(character: str, tokenizer: Tokenizer) -> str:
    """Return the text that a character decodes to: itself, `<unk>`, "a space", "nothing", or other text.

    The character is encoded alone, so longer pieces that contain it do not count. SentencePiece has a piece for every character
    that it knows.
    """
    if character == " ":
        return " "
    if tokenizer.unk_id in _encoded([character], tokenizer)[0]:
        return "<unk>"
    # The character is put between letters, because white space at the ends of a text is dropped.
    normalized = _normalized(f"a{character}a", tokenizer).replace("▁", " ").strip()[1:-1]
    if normalized.strip() == character:  # BERT's tokenizer puts spaces around punctuation
        return character
    return {" ": "a space", "": "nothing"}.get(normalized, normalized)


def tied(a: Sequence[int], b: Sequence[int], tokenizer: Tokenizer) -> bool:
    """Check whether two segmentations of a text, as ids, have the same probability, within the rounding of a float32 sum.

    SentencePiece adds up log probabilities in float32 from the beginning of the text. 2^-20 of the sum bounds the rounding error
    over the few pieces in which two segmentations differ.
    """
    if isinstance(tokenizer, EncoderTokenizer) or max(*a, *b, 0, 0) >= tokenizer.vocab_size:
        return False
    if len({"".join(map(tokenizer.processor.id_to_piece, ids)) for ids in (a, b)}) > 1:
        return False  # the pieces spell different texts: one has bytes or unknowns, which all have a score of 0
    first, second = (sum(sorted(map(tokenizer.processor.get_score, ids))) for ids in (a, b))
    return bool(abs(first - second) <= abs(first) * 2**-20)


def _compare(
    texts: list[str],
    ours: Sequence[Sequence[int]],
    theirs: Sequence[Sequence[int]],
    tokenizer: Tokenizer,
    counts: Agreement,
) -> None:
    for text, a, b in zip(texts, ours, theirs, strict=True):
        counts.texts += 1
        if list(a) == list(b):
            counts.equal += 1
        elif _SPECIAL.search(text):
            counts.spelled += 1
        elif tied(a, b, tokenizer):
            counts.ties += 1
        else:
            counts.unexplained += 1
            if len(counts.examples) < EXAMPLES:
                counts.examples.append(text[: 2 * EXCERPT])


def _excerpt(text: str, character: str) -> str:
    position = text.find(character)
    return text[max(0, position - EXCERPT // 2) : position + EXCERPT // 2]


def encode_by(content: bytes, *, name: str) -> Encode:
    """Return an encoder by the `tokenizer.json` `content`, without padding and truncation. Raises TokenizerError if damaged."""
    fast = read_fast(content, name=name)
    fast.no_padding()
    fast.no_truncation()

    def encode(texts: list[str]) -> list[list[int]]:
        with failures(name):
            return [encoded.ids for encoded in fast.encode_batch(texts, add_special_tokens=False)]

    return encode
