"""Turn the texts of examples into features: token ids cut to their lengths, and the number of tokens before cutting.

The policy head_tail keeps both ends: `ids[:255] + [marker] + ids[-256:]` for 512, as the tutorial of so_quality does. Sun et al.
2019 (arXiv 1905.05583) found both ends best for long documents. An input is cut as a whole, and keeps its final EOS. If some of
its texts are protected, or the model has special tokens between texts, each of the other texts is cut separately, and they share
the remaining room.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from t5prep.errors import Reject, TokenizerError
from t5prep.tasks import example_table
from t5prep.tasks.example import Example, Trace
from t5prep.tasks.example_table import END, PROTECTED, Inputs, visible
from t5prep.tasks.targets import IGNORED, HeadTarget, TagsTarget, Target, TextTarget
from t5prep.tokens import newlines, ragged
from t5prep.tokens.ragged import Frame, Ragged
from t5prep.tokens.tokenizer import Tokenizer


def ends(length: int, *, policy: str, marked: bool, closed: bool = True) -> tuple[int, int]:
    """Return the numbers of ids at the head and at the tail that are kept of a list cut to `length`.

    policy: "head", "tail" or "head_tail". marked: a marker between head and tail takes one of the `length` ids (head_tail only).
    closed: the last id is EOS, which every policy keeps.

    >>> ends(512, policy="head_tail", marked=True), ends(512, policy="head_tail", marked=False)
    ((255, 256), (256, 256))
    >>> ends(512, policy="head", marked=False), ends(512, policy="tail", marked=False)
    ((511, 1), (0, 512))
    >>> ends(512, policy="head", marked=False, closed=False)
    (512, 0)
    """
    if policy == "tail" or not length:
        return 0, length
    if policy == "head":
        return length - closed, int(closed)
    head = (length - 1) // 2 if marked else length // 2
    return head, length - head - marked


class Truncation(NamedTuple):
    """A way to cut rows: by `policy`, to `length` ids, with the id `marker` at the cut, or without a marker for None.

    `removed` collects the ids that are cut out, one list for each cut; None collects nothing.
    """

    policy: str
    length: int
    marker: int | None = None
    removed: list[list[int]] | None = None

    def cut_rows(self, rows: Ragged) -> Ragged:
        """Return rows, which end in EOS, cut to `length` ids. The texts in a row are not told apart."""
        return self._cut(rows, np.full(len(rows.starts) - 1, self.length), closed=True)

    def cut_texts(
        self, texts: Ragged, *, protected: np.ndarray, fields: np.ndarray, rows: np.ndarray, frame: Frame
    ) -> tuple[Ragged, np.ndarray]:
        """Return framed rows whose texts are cut separately, and the number of ids of each row that cannot be cut, int64[rows].

        Field i has the texts from `fields[i]` to `fields[i + 1]`, row i the fields from `rows[i]` to `rows[i + 1]`; the special
        tokens of `frame` surround fields. Texts that are `protected`, bool[texts], are not cut. If they leave no room, the row
        stays too long, which the second result shows.
        """
        texts_of_rows = fields[rows]
        row = np.repeat(np.arange(len(rows) - 1), np.diff(texts_of_rows))
        lengths = texts.lengths
        protected_lengths = np.bincount(row[protected], weights=lengths[protected], minlength=len(rows) - 1).astype(
            np.int64
        )
        fixed = frame.tokens(np.diff(rows)) + protected_lengths
        room = lengths.copy()
        room[~protected] = allot(lengths[~protected], row[~protected], np.maximum(self.length - fixed, 0))
        return ragged.framed(self._cut(texts, room, closed=False).joined(fields), rows, frame), fixed

    def _cut(self, lists: Ragged, room: np.ndarray, *, closed: bool) -> Ragged:
        """Return each list i cut to at most `room[i]` ids, int64[lists]. closed: see `ends`."""
        lengths = lists.lengths
        long = lengths > room
        if not long.any():
            return lists
        marks = (
            long & (room > 0) if self.marker is not None and self.policy == "head_tail" else np.zeros(len(long), bool)
        )
        heads, tails = lengths.copy(), np.zeros(len(lengths), np.int64)
        rooms, inverse = np.unique(room[long], return_inverse=True)
        end_lengths = [
            ends(length, policy=self.policy, marked=bool(marks.any()), closed=closed) for length in rooms.tolist()
        ]
        heads[long], tails[long] = np.array(end_lengths, np.int64)[inverse].T
        if self.removed is not None:
            edges = zip(lists.to_arrays(), heads.tolist(), (lengths - tails).tolist(), strict=True)
            self.removed.extend(ids[begin:end].tolist() for ids, begin, end in edges if begin < end)
        return ragged.ends_kept(lists, heads, tails, marked=marks, middle=self.marker or 0)


def allot(wants: np.ndarray, rows: np.ndarray, room: np.ndarray) -> np.ndarray:
    """Return the number of ids that each text gets in its row: short texts their length, long ones equal shares of the rest.

    wants: int64[texts], the length of each text. rows: int64[texts], sorted, the row of each text. room: int64[rows].

    >>> allot(np.array([10, 300, 400, 9]), np.array([0, 0, 0, 1]), np.array([410, 5])).tolist()
    [10, 200, 200, 5]
    """
    shares, remaining_room = np.zeros(len(wants), np.int64), room.astype(np.int64)
    counts = np.bincount(rows, minlength=len(room))
    shortest_first, begins = np.lexsort((wants, rows)), ragged.begins(counts)[:-1]
    for rank in range(int(counts.max(initial=0))):
        having = np.flatnonzero(counts > rank)
        texts = shortest_first[begins[having] + rank]
        shares[texts] = np.minimum(wants[texts], remaining_room[having] // (counts[having] - rank))
        remaining_room[having] -= shares[texts]
    return shares


# The following classes turn texts into features, for all rows of a block at once. The fields of an input are encoded, line by line
# if newlines are kept. Special tokens are put around and between them, and rows that are too long are cut.

MARKUP = r"</?[a-zA-Z][^<>]*>"


class Features(NamedTuple):
    """The features of many examples: ids of inputs and labels, and the numbers of their tokens before cutting, int64[rows].

    Inputs and labels end in EOS if the model expects it, and counts include EOS. `markup`, bool[rows]: the input contains an HTML
    tag. `reasons` maps a row without features to its reason; such a row has no ids, and its counts are 0.
    """

    inputs: Ragged
    labels: Ragged
    tokens: np.ndarray
    target_tokens: np.ndarray
    markup: np.ndarray
    reasons: dict[int, str]

    def without(self, rows: np.ndarray) -> "Features":
        """Return the features without the ids of the rows in the mask `rows`, bool[rows]. Their counts do not change."""
        row_indices = np.flatnonzero(rows)
        nothing = Ragged(np.zeros(0, np.int32), np.zeros(len(row_indices) + 1, np.int64))
        inputs, labels = (ragged.replaced(ids, row_indices, nothing) for ids in (self.inputs, self.labels))
        return self._replace(inputs=inputs, labels=labels)


class OneInput(NamedTuple):
    """The ids of one input, int32[length], and the number of its tokens before it was cut.

    `words`, int32[length], holds the number of the word that begins at an id, and -100 at other ids. It is empty if targets are
    not tags.
    """

    ids: np.ndarray
    tokens: int
    words: np.ndarray


@dataclasses.dataclass(frozen=True)
class _Encoded:
    """Encoded texts: their ids, with tokens for newlines, and the numbers of other ids, int64[texts], in `words`."""

    ids: Ragged
    words: np.ndarray


class Featurizer:
    """Turn examples into features. Threads may share a featurizer without a `trace`.

    Args:
        tokenizer: Encodes the texts.
        input_length: The maximum ids of an input.
        target_length: The maximum ids of a text target.
        policy: The policy of truncation of inputs, see `ends`. Targets keep their head.
        marker: "extra_id_1" to mark a cut of head_tail, or "none".
        keep_newlines: Whether newlines become tokens.
        target: The kind of target.
        documents: Examples are texts without a target. They are not cut, because a later stage cuts them into rows.
        trace: Records the ids that are cut out of a single row, for `t5prep why`.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        input_length: int,
        target_length: int,
        policy: str,
        marker: str,
        keep_newlines: bool = False,
        target: Target = TextTarget(),  # noqa: B008 - frozen
        documents: bool = False,
        trace: Trace | None = None,
    ) -> None:
        self._tokenizer, self._frame = tokenizer, tokenizer.frame
        self._end = Frame((), (), (tokenizer.eos_id,))
        self._lines = Frame((), (tokenizer.sentinel(newlines.SENTINEL_NUMBER),), ()) if keep_newlines else None
        self._target, self._documents = target, documents
        # The second sentinel marks the cut, as in the tutorial of so_quality: the first would look like a span to
        # fill in. A classification has no marker.
        marked = policy == "head_tail" and marker == "extra_id_1" and target.has_tokens
        sides = (trace.inputs, trace.targets) if trace else (None, None)
        self._cut = Truncation(policy, input_length, tokenizer.sentinel(1) if marked else None, sides[0])
        self._cut_target = Truncation("head", target_length, removed=sides[1])

    def __call__(self, inputs: Inputs, targets: pa.LargeStringArray | None) -> Features:
        """Return the features of the rows of `inputs` and `targets`. A row without parts has neither features nor a reason.

        `targets` is None for inputs to predict tags for: the labels of words are their numbers then.
        """
        for removed in filter(None, (self._cut.removed, self._cut_target.removed)):
            removed.clear()  # a row that is split passes here twice, and only its last features count
        if self._documents:
            features = self._of_documents(inputs)
        elif isinstance(self._target, TagsTarget):
            features = self._of_words(inputs, targets, self._target)
        else:
            features = self._of_pairs(inputs, targets)
        none = np.diff(inputs.starts) == 0
        none[list(features.reasons)] = True
        if not none.any():
            return features
        tokens, target_tokens = (np.where(none, 0, counts) for counts in (features.tokens, features.target_tokens))
        return features.without(none)._replace(tokens=tokens, target_tokens=target_tokens)

    def inputs_of(self, examples: Sequence[Example]) -> list[OneInput | Reject]:
        """Return the encoded input of each example, or a Reject with the reason why it has none. Targets are ignored."""
        table = example_table.made_of(range(len(examples)), examples)
        of_words = isinstance(self._target, TagsTarget)
        targets = None if of_words else pa.array([self._target.example] * len(examples), pa.large_string())
        features = self(example_table.inputs_of(table), targets)
        reasons = dict(enumerate(table["reason"].to_pylist())) | features.reasons
        nothing = np.zeros(0, np.int32)
        encoded_inputs = zip(
            features.inputs.to_arrays(), features.tokens.tolist(), features.labels.to_arrays(), strict=True
        )
        return [
            Reject(reason) if (reason := reasons[index]) else OneInput(ids, tokens, words if of_words else nothing)
            for index, (ids, tokens, words) in enumerate(encoded_inputs)
        ]

    def _of_pairs(self, inputs: Inputs, targets: pa.LargeStringArray) -> Features:
        fields, rows = inputs.fields()
        self._check_template(np.diff(rows))
        encoded = self._encode(fields)
        framed_rows = ragged.framed(encoded.ids, rows, self._frame)
        tokens = framed_rows.lengths
        cut, reasons = self._fitted(inputs, encoded, rows, framed_rows)
        has_fields = rows[1:] > rows[:-1]
        words = np.concatenate([[0], np.cumsum(encoded.words)])[rows]
        blank = has_fields & (np.diff(words) == 0)
        # For RoBERTa spaces are tokens, so a blank text is not recognized by the number of its tokens.
        if isinstance(self._target, HeadTarget):
            visible_counts = np.concatenate([[0], np.cumsum(visible(fields))])[rows]
            blank |= has_fields & (np.diff(visible_counts) == 0)
            reasons |= dict.fromkeys(np.flatnonzero(blank).tolist(), "empty input")
            numbers, wrong = self._target.labels(targets)
            labels = Ragged(numbers.ravel(), np.arange(len(numbers) + 1) * numbers.shape[1])
            target_tokens = labels.lengths
        else:
            reasons = dict.fromkeys(np.flatnonzero(blank).tolist(), "empty input") | reasons
            labels, target_tokens, wrong = self._target_ids(targets)
        reasons = {row: reason for row, reason in wrong.items() if has_fields[row]} | reasons
        return Features(cut, labels, tokens, target_tokens, _with_markup(fields, rows), reasons)

    def _check_template(self, texts: np.ndarray) -> None:
        """Raise TokenizerError if the tokenizer has no special tokens for a row's number of texts. texts: int64[rows]."""
        missing = self._tokenizer.template_without
        if (missing == "pair" and (texts > 1).any()) or (missing == "single" and (texts == 1).any()):
            rows = "rows of two texts" if missing == "pair" else "rows of one text"
            raise TokenizerError(
                f'The tokenizer {self._tokenizer.name} adds no special tokens to {rows}. Add "{missing}" to '
                "the TemplateProcessing step in the post_processor of its tokenizer.json.",
                code="tokenizer.missing-template",
            )

    def _of_documents(self, inputs: Inputs) -> Features:
        encoded = self._encode(inputs.documents()).ids
        rows = np.arange(len(inputs.starts))
        framed_rows, nothing = ragged.framed(encoded, rows, self._end), np.zeros(len(rows) - 1, np.int64)
        labels = Ragged(np.zeros(0, np.int32), ragged.begins(nothing))
        empty = np.flatnonzero((encoded.lengths == 0) & (np.diff(inputs.starts) > 0))
        reasons = dict.fromkeys(empty.tolist(), "empty text")
        return Features(framed_rows, labels, framed_rows.lengths, nothing, nothing.astype(bool), reasons)

    def _encode(self, texts: pa.LargeStringArray) -> _Encoded:
        """Return the encoded texts, without special tokens; with tokens for newlines if these are kept."""
        if self._lines is None:
            ids = self._tokenizer.encode_block(texts)
            return _Encoded(ids, ids.lengths)
        lines = pc.split_pattern_regex(texts, pattern=newlines.PATTERN)
        encoded_lines, edges = self._tokenizer.encode_block(lines.values), lines.offsets.to_numpy().astype(np.int64)
        return _Encoded(ragged.framed(encoded_lines, edges, self._lines), encoded_lines.joined(edges).lengths)

    def _fitted(
        self, inputs: Inputs, encoded: _Encoded, rows: np.ndarray, framed_rows: Ragged
    ) -> tuple[Ragged, dict[int, str]]:
        """Return the rows cut to the input length, and the reasons of rows that cannot be cut so short.

        Row r has the fields of `encoded` from `rows[r]` to `rows[r + 1]`. `framed_rows` are the uncut rows with special tokens.
        """
        long, protected = framed_rows.lengths > self._cut.length, inputs.with_protected()
        if not long.any():
            return framed_rows, {}
        reasons: dict[int, str] = {}
        fitted_rows = framed_rows if not self._target.has_tokens or protected.all() else self._cut.cut_rows(framed_rows)
        if not self._target.has_tokens and len(row_indices := np.flatnonzero(long & ~protected)):
            lengths = np.diff(rows)[row_indices]
            edges = ragged.begins(lengths)
            fields = np.arange(edges[-1]) + np.repeat(rows[row_indices] - edges[:-1], lengths)
            texts = ragged.take(encoded.ids, fields)
            nothing, field_edges = np.zeros(len(fields), bool), np.arange(len(fields) + 1)
            cut, _ = self._cut.cut_texts(texts, protected=nothing, fields=field_edges, rows=edges, frame=self._frame)
            fitted_rows = ragged.replaced(fitted_rows, row_indices, cut)
        if len(row_indices := np.flatnonzero(long & protected)):
            protected_inputs = inputs.take(row_indices)
            fields, edges = protected_inputs.field_edges()
            texts = self._encode(protected_inputs.parts).ids
            is_cuttable = protected_inputs.kinds != PROTECTED
            is_cuttable[protected_inputs.kinds == END] = False  # has no text
            cut, fixed = self._cut.cut_texts(
                texts, protected=~is_cuttable, fields=fields, rows=edges, frame=self._frame
            )
            fitted_rows = ragged.replaced(fitted_rows, row_indices, cut)
            special = self._frame.tokens(np.diff(edges))
            for index in np.flatnonzero(fixed > self._cut.length).tolist():
                reasons[int(row_indices[index])] = self._too_long(int(fixed[index]), int(special[index]))
        return fitted_rows, reasons

    def _too_long(self, fixed: int, special: int) -> str:
        """Return the reason of a row whose protected texts and special tokens, `fixed` ids in all, are too long."""
        if self._target.has_tokens:
            return f"protected text too long: {fixed} tokens with EOS, the limit is {self._cut.length}"
        room = self._cut.length - special
        return f"protected text too long: {fixed - special} tokens, and the limit leaves {room}"

    def _of_words(self, inputs: Inputs, targets: pa.LargeStringArray | None, target: TagsTarget) -> Features:
        """Return the features of words and their tags. A word's label is at its first piece; other labels are -100.

        Words are encoded one by one, each with a space before it, as transformers encodes a list of words.
        """
        fields, rows = inputs.fields()
        words = pc.split_pattern(fields, " ")
        edges = words.offsets.to_numpy().astype(np.int64)
        coded = pc.dictionary_encode(words.values)
        spellings = pc.replace_substring(coded.dictionary, example_table.SPACE_IN_WORD, " ")
        spellings = pc.binary_join_element_wise(
            pa.scalar("", pa.large_string()), spellings, pa.scalar(" ", pa.large_string())
        )
        encoded_words = ragged.take(self._tokenizer.encode_block(spellings), coded.indices.to_numpy().astype(np.int64))
        of_words, wrong = target.labels_of_words(targets, edges, rows)
        labels = np.full(len(encoded_words.ids), IGNORED, np.int32)
        has_pieces = encoded_words.lengths > 0
        labels[encoded_words.starts[:-1][has_pieces]] = of_words[has_pieces]
        row_of = np.repeat(np.arange(len(rows) - 1), np.diff(rows))
        empty = (pc.equal(words.values, "").to_numpy(zero_copy_only=False)).nonzero()[0]
        blank = row_of[np.searchsorted(edges, empty, side="right") - 1]
        texts = Ragged(encoded_words.ids, encoded_words.starts[edges])
        wrong |= dict.fromkeys(row_of[texts.lengths == 0].tolist(), "empty input") | dict.fromkeys(
            blank.tolist(), "empty word: there are two spaces, or an empty text, between words"
        )
        wrong |= dict.fromkeys(
            np.flatnonzero(np.diff(rows) > 1).tolist(), "tags are for the words of one text, not of a pair"
        )
        # Labels are cut and framed like the ids, with -100 for special tokens, so that both stay aligned.
        nowhere = Frame(*((IGNORED,) * len(part) for part in self._frame))
        unseen = self._cut._replace(removed=None)
        sides = [(self._cut, texts, self._frame), (unseen, Ragged(labels, texts.starts), nowhere)]
        field_edges, nothing = np.arange(len(fields) + 1), np.zeros(len(fields), bool)
        inputs_, marks = (
            cut.cut_texts(side, protected=nothing, fields=field_edges, rows=rows, frame=frame)[0]
            for cut, side, frame in sides
        )
        tokens = ragged.framed(texts, rows, self._frame).lengths
        return Features(inputs_, marks, tokens, marks.lengths, _with_markup(fields, rows), wrong)

    def _target_ids(self, targets: pa.LargeStringArray) -> tuple[Ragged, np.ndarray, dict[int, str]]:
        """Return the labels of targets, the numbers of their tokens before cutting, and the reasons of empty targets.

        Each distinct target is tokenized once, because targets often repeat.
        """
        coded = pc.dictionary_encode(targets)
        codes = coded.indices.to_numpy()
        encoded = self._encode(coded.dictionary)
        labels = ragged.framed(encoded.ids, np.arange(len(coded.dictionary) + 1), self._tokenizer.frame_of_targets)
        empty = np.flatnonzero((encoded.words == 0)[codes])
        cut = ragged.take(self._cut_target.cut_rows(labels), codes)
        return cut, labels.lengths[codes], dict.fromkeys(empty.tolist(), "empty target")


def _with_markup(fields: pa.LargeStringArray, rows: np.ndarray) -> np.ndarray:
    """Return for each row whether one of its fields contains an HTML tag, bool[rows]. Row i has the fields from `rows[i]` on."""
    holding = pc.match_substring_regex(fields, pattern=MARKUP).to_numpy(zero_copy_only=False)
    return np.diff(np.concatenate([[0], np.cumsum(holding)])[rows]) > 0
