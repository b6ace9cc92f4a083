"""Convert token ids to coloured pieces of text: head, marker, tail, sentinels, EOS, padding, and ignored labels."""

import dataclasses
from collections.abc import Iterable, Sequence

from t5prep.dataset.manifest import Manifest
from t5prep.dataset.prepared import DecodedRecord
from t5prep.dataset.tfrecord import IGNORED_LABEL
from t5prep.tokens.tokenizer import Tokenizer

# Maximum number of pieces of a text. The middle of a longer text is left out of the page.
_MAX_PIECES = 600


@dataclasses.dataclass(frozen=True)
class Piece:
    """Hold a token, or a run of tokens, to show. `title` is its tooltip.

    `kind` decides its colour: text, tail, unknown, marker, sentinel, eos, padding, ignored or elided.
    """

    text: str
    kind: str
    title: str


def of_record(record: DecodedRecord, dataset: Manifest, tokenizer: Tokenizer) -> dict[str, list[Piece]]:
    """Return the pieces of a record: {"input": ..., "target": ...}. A class is one piece."""
    marker, target = tokenizer.sentinel(1) if dataset.marked else None, dataset.target
    pieces = labels(record.labels, tokenizer)
    if not target.has_tokens:
        pieces = [Piece(record.targets, "text", target.note(record.labels) or target.name)]
    return {"input": inputs(record.input_ids, tokenizer, marker=marker), "target": pieces}


def inputs(ids: Sequence[int], tokenizer: Tokenizer, *, marker: int | None) -> list[Piece]:
    """Return the pieces of an input. `marker` is the id of the token at a cut, or None; the tail follows its first use."""
    pieces, tail = [], False
    for token in _filled(ids, tokenizer.pad_id):
        if token == marker and not tail:
            tail = True
            pieces.append(Piece("✂", "marker", f"{tokenizer.piece(token)} · {token}: here the middle was cut out"))
        else:
            pieces.append(_piece(token, tokenizer, plain="tail" if tail else "text"))
    return [*_bounded(pieces), *_summarize_run(len(ids) - len(pieces), "padding", tokenizer.pad_id)]


def labels(ids: Sequence[int], tokenizer: Tokenizer) -> list[Piece]:
    """Return the pieces of a target. All positions that the loss ignores are one piece at its end."""
    visible = [token for token in _filled(ids, IGNORED_LABEL) if token != IGNORED_LABEL]
    pieces = [_piece(token, tokenizer, plain="text") for token in visible]
    return [*_bounded(pieces), *_summarize_run(len(ids) - len(pieces), "ignored", IGNORED_LABEL)]


def _filled(ids: Sequence[int], pad: int) -> Sequence[int]:
    """Return `ids` without the padding at their end."""
    end = len(ids)
    while end and ids[end - 1] == pad:
        end -= 1
    return ids[:end]


def _piece(token: int, tokenizer: Tokenizer, *, plain: str) -> Piece:
    """Return the piece of one token. `plain` is its kind if it is no special token."""
    piece = tokenizer.piece(token)
    kind = plain
    if token == tokenizer.eos_id:
        kind = "eos"
    elif token == tokenizer.unk_id:
        kind = "unknown"
    elif tokenizer.special(token):
        kind = "sentinel"
    return Piece(piece.replace("▁", " "), kind, f"{piece} · {token}")


def _bounded(pieces: list[Piece]) -> Iterable[Piece]:
    """Return the pieces, or for more than _MAX_PIECES their start and end with a note between."""
    if len(pieces) <= _MAX_PIECES:
        return pieces
    left_out = f"… {len(pieces) - _MAX_PIECES:,} tokens more …"
    return [
        *pieces[: _MAX_PIECES // 2],
        Piece(left_out, "elided", "left out of this page"),
        *pieces[-_MAX_PIECES // 2 :],
    ]


def _summarize_run(count: int, kind: str, token: int) -> list[Piece]:
    """Return one piece for `count` equal tokens, such as `padding × 120`; none for 0."""
    return [Piece(f"{kind} × {count:,}", kind, str(token))] if count > 0 else []
