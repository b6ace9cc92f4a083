"""Records without TensorFlow, against TensorFlow."""

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t5prep.dataset import tfrecord

INT64 = st.integers(-(2**63), 2**63 - 1)


def serialized(features: dict[str, list[int] | list[bytes]]) -> bytes:
    entries = b""
    for name, values in sorted(features.items()):
        if values and isinstance(values[0], bytes):
            entries += tfrecord.bytes_feature(name, [value for value in values if isinstance(value, bytes)])
        else:
            entries += tfrecord.int64_feature(name, b"".join(tfrecord.varint(int(value)) for value in values))
    return tfrecord.example(entries)


@given(st.lists(st.integers(0, (1 << 21) - 1), max_size=50))
def test_varints_of_a_block_are_those_of_its_values(values: list[int]) -> None:
    data, begins = tfrecord.varints(np.array(values, np.int32))
    assert [data[begins[i] : begins[i + 1]] for i in range(len(values))] == [tfrecord.varint(value) for value in values]


@given(
    st.dictionaries(st.text(max_size=9), st.lists(INT64, min_size=1) | st.lists(st.binary(), min_size=1), max_size=4)
)
def test_what_is_written_is_read_back(features: dict[str, Any]) -> None:
    assert tfrecord.parse(serialized(features)) == features


@given(st.lists(st.binary(max_size=300)))
def test_frames_are_read_back(records: list[bytes]) -> None:
    assert list(tfrecord.read(io.BytesIO(b"".join(map(tfrecord.frame, records))))) == records


@pytest.mark.parametrize("at", [0, 8, 12, 20, -1])
def test_any_flipped_bit_is_noticed(at: int) -> None:
    data = bytearray(tfrecord.frame(b"twelve bytes") + tfrecord.frame(b"more"))
    data[at] ^= 1
    with pytest.raises(ValueError, match="a broken record"):
        list(tfrecord.read(io.BytesIO(bytes(data))))


def test_a_record_cut_short_is_noticed() -> None:
    whole = tfrecord.frame(b"twelve bytes")
    for length in range(1, len(whole)):
        with pytest.raises(ValueError, match="a broken record"):
            list(tfrecord.read(io.BytesIO(whole[:length])))


def test_bytes_are_tensorflows_own(tmp_path: Any) -> None:
    tf = pytest.importorskip("tensorflow")
    features: dict[str, list[int] | list[bytes]] = {
        "id": ["één".encode()], "input_ids": [0, 1, 127, 128, 16_383, 16_384, 32_099] * 200, "labels": [5, 1, -100, -100],
        "references": [b"", b"a" * 200, b"\0\xff"], "empty": [],
    }  # fmt: skip
    example = tf.train.Example()
    for name, values in features.items():
        if name in ("id", "references"):
            example.features.feature[name].bytes_list.value.extend(values)
        else:
            example.features.feature[name].int64_list.value.extend(values)
    ours = serialized(features)
    assert ours == example.SerializeToString(deterministic=True)
    with tf.io.TFRecordWriter(str(tmp_path / "theirs")) as writer:
        writer.write(ours)
    assert (tmp_path / "theirs").read_bytes() == tfrecord.frame(ours)
