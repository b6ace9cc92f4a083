"""Write features as framed tf.train.Example records: padded to fixed lengths, ragged, or several examples in one."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from t5prep.dataset import tfrecord
from t5prep.dataset.manifest import Feature
from t5prep.dataset.settings import Settings
from t5prep.prepare.bare_records import Bare
from t5prep.tasks.task import Task
from t5prep.tokens import packing
from t5prep.tokens.names import Names

try:
    from t5prep.tokens._native import write_packed, write_records
except ImportError:  # no compiler
    write_packed = write_records = None  # type: ignore[assignment]

# Rows that are packed and written at a time: some megabytes.
ROWS_A_PART = 1024
# Ids of several rows, int32[total], and where each row's begin, int64[rows + 1].
Lists = tuple[np.ndarray, np.ndarray]


def built_when_written(settings: Settings, task: Task) -> bool:
    """Return whether records are built when a shard is written, of examples that were spilled without padding."""
    return settings.layout == "packed" or task.spans is not None


def features(settings: Settings, *, references: bool) -> dict[str, Feature]:
    """Return the features of a record of this preparation, as the manifest names them (design: the data contract)."""
    inputs, targets = settings.input_length, settings.target_length
    if settings.layout == "packed":
        lengths = {"input_ids": inputs, "input_positions": inputs, "input_segment_ids": inputs}
        lengths |= {"label_positions": targets, "label_segment_ids": targets, "labels": targets}
        return {"id": Feature("bytes", [None]), **{name: Feature("int64", [n]) for name, n in lengths.items()}}
    ragged = settings.layout == "ragged"
    spec = {
        "id": Feature("bytes", [1]),
        "input_ids": Feature("int64", [None if ragged else inputs]),
        "labels": Feature("int64", [None if ragged else targets]),
    }
    if settings.masks:
        spec["attention_mask"] = Feature("int64", [inputs])
        if settings.target == "class":
            spec["token_type_ids"] = Feature("int64", [inputs])
        else:
            spec["decoder_attention_mask"] = Feature("int64", [targets])
    if references:
        spec["references"] = Feature("bytes", [None])
    return dict(sorted(spec.items()))


class Records(NamedTuple):
    """Hold framed records, one after the other, and how many bytes each has: uint32[records]."""

    data: bytes
    sizes: np.ndarray

    @staticmethod
    def of(records: list[bytes]) -> "Records":
        """Return records that are apart as one."""
        return Records(b"".join(records), np.fromiter(map(len, records), np.uint32, len(records)))


class RecordWriter:
    """Write a block of features at once: in C where that is built, else with numpy, to the same bytes."""

    def __init__(self, settings: Settings, *, pad_id: int, separator: int = 1, bare: bool = False) -> None:
        """Set up a writer. `bare`: without padding and masks, because records are built when a shard is written.

        `separator` ends the first text of a pair: token_type_ids, which classes have beside the mask, are 1 after it.
        """
        self._padded = settings.layout == "padded" and not bare
        self._masks = settings.masks and not bare
        self._lengths = settings.input_length, settings.target_length
        self._pads = pad_id, tfrecord.IGNORED_LABEL
        self._types = self._masks and settings.target == "class"
        self._separator = separator

    def __call__(
        self, ids: list[str], inputs: Lists, labels: Lists, references: list[list[str]], *, order: np.ndarray
    ) -> Records:
        """Return framed records: the first is made of row `order[0]` of what is given."""
        in_c = write_records is not None and not any(references) and not self._types
        if in_c and (self._padded or not self._masks):
            return self._write_in_c(ids, inputs, labels, order)
        records = self._write(ids, inputs, labels, references)
        return Records.of([records[row] for row in order.tolist()])

    def _write_in_c(self, ids: list[str], inputs: Lists, labels: Lists, order: np.ndarray) -> Records:
        names = Names.of(ids)
        values = [np.ascontiguousarray(ids, np.int32) for ids, _ in (inputs, labels)]
        begins = [np.ascontiguousarray(begins, np.int64) for _, begins in (inputs, labels)]
        data, sizes = write_records(
            names.data,
            names.starts,
            values[0],
            begins[0],
            values[1],
            begins[1],
            np.ascontiguousarray(order, np.int64),
            self._lengths if self._padded else (0, 0),
            self._pads,
            self._masks,
        )
        return Records(data, np.frombuffer(sizes, np.uint32))

    def _write(self, ids: list[str], inputs: Lists, labels: Lists, references: list[list[str]]) -> list[bytes]:
        packed_inputs, packed_labels = (
            padded(*lists, length=self._lengths[side] if self._padded else None, pad=tfrecord.varint(self._pads[side]))
            for side, lists in enumerate((inputs, labels))
        )
        masks = self._mask_entries(np.diff(inputs[1]), np.diff(labels[1])) if self._masks else [b""] * len(ids)
        int64, texts = tfrecord.int64_feature, tfrecord.bytes_feature
        # Labels are often a class: the same few entries again and again.
        label_entries = {values: int64("labels", values) for values in set(packed_labels)}
        types = self._type_entries(*inputs) if self._types else [b""] * len(ids)
        records = []
        for id, mask, inputs_of, labels_of, answers, types_of in zip(
            ids, masks, packed_inputs, packed_labels, references, types, strict=True
        ):
            entries = [
                mask,
                texts("id", [id.encode("utf-8", "surrogatepass")]),
                int64("input_ids", inputs_of),
                label_entries[labels_of],
            ]
            if answers:
                entries.append(texts("references", [text.encode() for text in answers]))
            entries.append(types_of)
            records.append(tfrecord.frame(tfrecord.example(b"".join(entries))))
        return records

    def _mask_entries(self, inputs: np.ndarray, labels: np.ndarray) -> list[bytes]:
        """Return the entries of the masks, which come first in the order of names."""
        if self._types:
            return [self._mask("attention_mask", tokens, self._lengths[0]) for tokens in inputs.tolist()]
        return [
            self._mask("attention_mask", tokens, self._lengths[0])
            + self._mask("decoder_attention_mask", targets, self._lengths[1])
            for tokens, targets in zip(inputs.tolist(), labels.tolist(), strict=True)
        ]

    def _type_entries(self, ids: np.ndarray, begins: np.ndarray) -> list[bytes]:
        """Return the entries of token_type_ids: 1 for the tokens after the first separator, 0 for others and padding."""
        entries = []
        for begin, end in zip(begins[:-1].tolist(), begins[1:].tolist(), strict=True):
            places = np.flatnonzero(ids[begin:end] == self._separator)
            first = int(places[0]) + 1 if len(places) else end - begin
            types = b"\x00" * first + b"\x01" * (end - begin - first)
            entries.append(tfrecord.int64_feature("token_type_ids", types.ljust(self._lengths[0], b"\x00")))
        return entries

    @staticmethod
    def _mask(name: str, ones: int, length: int) -> bytes:
        return tfrecord.int64_feature(name, b"\x01" * ones + b"\x00" * (length - ones))


class PackedWriter:
    """Write rows of several examples each (packing.pack): their ids, tokens, segment ids and positions."""

    def __init__(self, settings: Settings, *, pad_id: int) -> None:
        self._room = settings.input_length, settings.target_length
        self._pads = pad_id, tfrecord.IGNORED_LABEL

    def parts(self, examples: Bare, rows: np.ndarray) -> Iterator[Records]:
        """Yield framed records, at most ROWS_A_PART at a time, so that one part's memory serves the next.

        `rows`, int64[examples], are the rows that examples stand in (packing.first_fit). A row's `id` holds those of its
        examples, in the order of its segments.
        """
        order = np.argsort(rows, kind="stable")
        count = int(rows.max(initial=-1)) + 1
        edges = np.searchsorted(rows[order], np.arange(count + 1))
        if write_packed is None:
            yield Records.of(self._write(examples, order, edges))
            return
        names, inputs, labels = examples
        for first in range(0, max(count, 1), ROWS_A_PART):
            data, sizes = write_packed(
                names.data,
                names.starts,
                np.ascontiguousarray(inputs.ids, np.int32),
                np.ascontiguousarray(inputs.starts, np.int64),
                np.ascontiguousarray(labels.ids, np.int32),
                np.ascontiguousarray(labels.starts, np.int64),
                np.ascontiguousarray(order, np.int64),
                np.ascontiguousarray(edges[first : first + ROWS_A_PART + 1], np.int64),
                self._room,
                self._pads,
            )
            yield Records(data, np.frombuffer(sizes, np.uint32))

    def _write(self, examples: Bare, order: np.ndarray, edges: np.ndarray) -> list[bytes]:
        pairs = list(zip(examples.inputs.apart(), examples.labels.apart(), strict=True))
        pads = {"input_ids": self._pads[0], "labels": self._pads[1]}
        rows = packing.pack(pairs, room=self._room, pad_id=pads["input_ids"], label_pad=pads["labels"])
        columns = {}
        for name in packing.FEATURES:
            side = int(name.startswith("label"))
            filled = rows["label_segment_ids" if side else "input_segment_ids"] > 0
            begins = np.concatenate([[0], filled.sum(axis=1).cumsum()])
            pad = tfrecord.varint(pads.get(name, 0))
            columns[name] = padded(rows[name][filled], begins, length=self._room[side], pad=pad)
        names = [name.encode("utf-8", "surrogatepass") for name in examples.ids]
        return [
            tfrecord.frame(
                tfrecord.example(
                    tfrecord.bytes_feature("id", [names[i] for i in order[edges[row] : edges[row + 1]].tolist()])
                    + b"".join(tfrecord.int64_feature(name, columns[name][row]) for name in packing.FEATURES)
                )
            )
            for row in range(len(edges) - 1)
        ]


def padded(ids: np.ndarray, begins: np.ndarray, *, length: int | None, pad: bytes) -> list[bytes]:
    """Return the varints of each list of flat ids, filled up with `pad` (itself a varint) to `length` values, if there is one."""
    data, places = tfrecord.varints(ids)
    edges = places[begins].tolist()
    pieces = [data[edges[i] : edges[i + 1]] for i in range(len(edges) - 1)]
    if length is not None:
        missing = (length - np.diff(begins)).tolist()
        pieces = [piece + pad * count for piece, count in zip(pieces, missing, strict=True)]
    return pieces
