"""Answers to texts, with a run's own tokenizer, cut as its data was cut."""

import dataclasses
import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from t5prep.errors import Reject, UsageError
from t5prep.tasks.example import EOS, Example, Part
from t5prep.tokens import newlines
from t5prep.tokens.encoder import Encoder
from t5prep.tokens.newlines import SPACE, Newlines
from t5prep.tokens.tokenizer import Tokenizer
from t5prep.train import run
from t5prep.train.device import on_replicas, strategy
from t5prep.train.model.generate import generate
from t5prep.train.model.weights import create_variables

INPUT_LENGTH, TARGET_LENGTH = 512, 128  # of a model that comes without a manifest
LENGTH_STEP = 64  # inputs are padded to a multiple of it, so that few programs are compiled


@dataclasses.dataclass(frozen=True)
class Item:
    """One text to answer. Several fields are joined by the EOS token, as some tasks have it."""

    id: str
    fields: tuple[str, ...]


def read_items(lines: Iterable[str], *, jsonl: bool) -> list[Item]:
    """Items of a file: a text a line, its number the id; or JSON lines of `input` (a text, or fields) and maybe `id`.

    >>> read_items(['{"id": "a", "input": ["title", "body"]}'], jsonl=True)
    [Item(id='a', fields=('title', 'body'))]

    Raises UsageError naming the line.
    """
    items = []
    for number, line in enumerate(lines, start=1):
        text = line.rstrip("\r\n")
        if not text.strip():
            continue
        try:
            said = json.loads(text) if jsonl else {"input": text}
            given = said["input"]
            fields = (given,) if isinstance(given, str) else tuple(map(str, given))
            if not fields or isinstance(given, dict):
                raise ValueError(given)
            "".join(fields).encode()  # half of a surrogate pair is no text
        except (ValueError, KeyError, TypeError) as error:
            wanted = '{"input": "…"}' if jsonl else "text in UTF-8"
            raise UsageError(f"Line {number} is not {wanted}: {text[:60]!r} ({type(error).__name__}).") from error
        items.append(Item(str(said.get("id", number)), fields))
    return items


def predict(
    model: str,
    *,
    items: Sequence[Item],
    which: str = "best",
    batch: int = 16,
    beams: int = 1,
    max_length: int = 0,
    tokenizer: str = "",
    tpu: str | None = None,
    gpus: bool = False,
) -> list[dict[str, str]]:
    """`[{"id", "input", "prediction"}]`, in order. `max_length`: tokens of an answer; 0: as long as the run's targets.

    Raises UsageError, TokenizerError.
    """
    if not items:
        return []
    opened = run.open_model(model, which=which)
    words = opened.tokenizer
    if tokenizer or words is None:
        from t5prep.tokens import loading

        words = loading.load(tokenizer or model)
    lengths = {"inputs": INPUT_LENGTH, "targets": TARGET_LENGTH}
    policy, marker = "head", "none"
    kept: Newlines = SPACE
    if opened.manifests:
        known = opened.manifests[0]
        lengths, policy, marker = known.lengths, known.truncation.policy, known.truncation.marker
        kept = known.newlines
    encode = Encoder(
        words, input_length=lengths["inputs"], target_length=2, policy=policy, marker=marker, newlines=kept
    )
    ids = []
    for item, made in zip(items, encode([_example(item) for item in items]), strict=True):
        if isinstance(made, Reject):
            raise UsageError(f"The input {item.id} cannot be answered: {made}. Leave it out.")
        ids.append(np.concatenate(made.inputs))
    ids_length = min(-(-max(map(len, ids)) // LENGTH_STEP) * LENGTH_STEP, lengths["inputs"])

    place = strategy(tpu=tpu, gpus=gpus)
    replicas = place.num_replicas_in_sync
    rows = -(-min(batch, len(ids)) // replicas) * replicas
    with place.scope():
        weights = create_variables(opened.weights)
    dtype = tf.float32 if tpu is None and not gpus else tf.bfloat16
    options = {"max_length": max_length or answer_length(lengths["targets"]), "beams": beams, "dtype": dtype}
    search = on_replicas(place, functools.partial(_search, config=opened.config, options=options), weights)
    answers: list[str] = []
    for first in range(0, len(ids), rows):
        some = ids[first : first + rows]
        found = search(_padded(some, rows=rows, length=ids_length, words=words))["ids"]
        answers += [answer(row, words, kept=kept) for row in found[: len(some)]]
    return [
        {"id": item.id, "input": " ".join(item.fields), "prediction": said}
        for item, said in zip(items, answers, strict=True)
    ]


def answer_length(target_length: int) -> int:
    """Tokens to generate. Of classes (a token and EOS) the first alone answers, as evaluation has it."""
    return 1 if target_length == 2 else target_length


def answer(ids: Sequence[int] | np.ndarray, words: Tokenizer, *, kept: Newlines = SPACE) -> str:
    """Text of generated ids, without EOS and padding; `kept` is what the run's data has for a newline."""
    plain = [int(token) for token in ids if token not in (words.eos_id, words.pad_id)]
    return newlines.decode(plain, tokenizer=words, newlines=kept)


def _example(item: Item) -> Example:
    """Its fields with EOS between them; the target is made up, because none is known and an example has one."""
    parts: list[Part] = [item.fields[0]]
    for field in item.fields[1:]:
        parts += [EOS, field]
    return Example(id=item.id, inputs=tuple(parts), targets="unknown")


def _padded(some: Sequence[np.ndarray], *, rows: int, length: int, words: Tokenizer) -> dict[str, tf.Tensor]:
    """A batch of static shape; rows beyond the given ones hold EOS alone."""
    ids = np.full([rows, length], words.pad_id, np.int32)
    mask = np.zeros([rows, length], np.int32)
    for row in range(rows):
        own = some[row] if row < len(some) else np.array([words.eos_id])
        ids[row, : len(own)], mask[row, : len(own)] = own, 1
    return {"input_ids": tf.constant(ids), "attention_mask": tf.constant(mask)}


def _search(
    weights: Mapping[str, tf.Tensor], batch: Mapping[str, tf.Tensor], *, config: Any, options: Mapping[str, Any]
) -> dict[str, tf.Tensor]:
    return {"ids": generate(weights, config, batch["input_ids"], batch["attention_mask"], **options)}
