"""Features as framed tf.train.Example records: padded to fixed lengths, or ragged."""

import numpy as np

from t5prep import tfrecord
from t5prep.manifest import Feature
from t5prep.settings import Settings


def features(settings: Settings, *, references: bool) -> dict[str, Feature]:
    """The features of a record of this preparation, as the manifest names them (design: the data contract)."""
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
        spec["decoder_attention_mask"] = Feature("int64", [targets])
    if references:
        spec["references"] = Feature("bytes", [None])
    return dict(sorted(spec.items()))


class RecordWriter:
    """Writes a block of features at once: the varints of all its ids are made in one numpy pass."""

    def __init__(self, settings: Settings, *, pad_id: int) -> None:
        # Packed rows are put together when a shard is gathered, from ragged ones.
        self._padded = settings.layout == "padded"
        self._masks = settings.masks
        self._lengths = settings.input_length, settings.target_length
        self._pads = tfrecord.varint(pad_id), tfrecord.varint(tfrecord.IGNORED_LABEL)

    def __call__(
        self,
        ids: list[str],
        inputs: tuple[np.ndarray, np.ndarray],
        labels: tuple[np.ndarray, np.ndarray],
        references: list[list[str]],
    ) -> list[bytes]:
        """Framed records. `inputs` and `labels` are flat ids `int32[total]` and where each list begins `int64[n + 1]`."""
        input_lengths, label_lengths = np.diff(inputs[1]).tolist(), np.diff(labels[1]).tolist()
        packed_inputs = self._packed(inputs, which=0)
        packed_labels = self._packed(labels, which=1)
        records = []
        for i, id in enumerate(ids):
            entries = [
                tfrecord.bytes_feature("id", [id.encode("utf-8", "surrogatepass")]),
                tfrecord.int64_feature("input_ids", packed_inputs[i]),
                tfrecord.int64_feature("labels", packed_labels[i]),
            ]
            if references[i]:
                entries.append(tfrecord.bytes_feature("references", [text.encode() for text in references[i]]))
            if self._masks:
                entries[:0] = [
                    self._mask("attention_mask", input_lengths[i], self._lengths[0]),
                    self._mask("decoder_attention_mask", label_lengths[i], self._lengths[1]),
                ]
            records.append(tfrecord.frame(tfrecord.example(b"".join(entries))))
        return records

    def _packed(self, lists: tuple[np.ndarray, np.ndarray], *, which: int) -> list[bytes]:
        """The varints of each list, padded where the layout is."""
        ids, begins = lists
        data, places = tfrecord.varints(ids)
        edges = places[begins].tolist()
        pieces = [data[edges[i] : edges[i + 1]] for i in range(len(edges) - 1)]
        if self._padded:
            length, pad = self._lengths[which], self._pads[which]
            missing = (length - np.diff(begins)).tolist()
            pieces = [piece + pad * count for piece, count in zip(pieces, missing, strict=True)]
        return pieces

    @staticmethod
    def _mask(name: str, ones: int, length: int) -> bytes:
        return tfrecord.int64_feature(name, b"\x01" * ones + b"\x00" * (length - ones))
