"""Records without TensorFlow, against TensorFlow."""

import io
import struct
from typing import Any

import pytest
import records_in_python
from hypothesis import given
from hypothesis import strategies as st

from t5prep.dataset import tfrecord

INT64 = st.integers(-(2**63), 2**63 - 1)


NAMES = st.text(max_size=9).filter(lambda name: name not in ("id", "references"))  # which `framing` takes for bytes


@given(st.dictionaries(NAMES, st.lists(INT64, min_size=1) | st.lists(st.binary(), min_size=1), max_size=4))
def test_what_is_written_is_read_back(features: dict[str, Any]) -> None:
    assert tfrecord.parse(records_in_python.example(features)) == features


@given(
    st.binary(max_size=60)
    | st.builds(lambda entry: records_in_python.field(1, b"\x0a" + entry), st.binary(max_size=40))
)
def test_bytes_that_are_no_example_are_refused(record: bytes) -> None:
    try:
        tfrecord.parse(record)
    except ValueError:
        return


@pytest.mark.parametrize("packed", [b"\xff" * 200_000 + b"\x01", b"\x01\x80", b"\x80" * 10 + b"\x00"])
def test_a_number_of_too_many_bytes_is_refused(packed: bytes) -> None:
    with pytest.raises(ValueError, match="a broken number"):
        tfrecord.unpack(packed)
    with pytest.raises(ValueError, match=r"not a tf\.train\.Example"):
        tfrecord.parse(packed)


@pytest.mark.parametrize("length", [1 << 36, 1 << 62, (1 << 64) - 1])
def test_a_length_that_is_a_lie_takes_no_memory(length: int) -> None:
    class Stream(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            assert size is not None
            assert size <= 1 << 24
            return super().read(size)

    head = struct.pack("<Q", length)
    with pytest.raises(ValueError, match="a broken record at byte 0"):
        list(tfrecord.read(Stream(head + tfrecord.masked_checksum(head) + b"x" * 100)))


def test_a_long_record_is_read_in_pieces() -> None:
    records = [b"ab" * (1 << 24), b"c"]
    assert list(tfrecord.read(io.BytesIO(b"".join(map(records_in_python.frame, records))))) == records


@given(st.lists(st.binary(max_size=300)))
def test_frames_are_read_back(records: list[bytes]) -> None:
    assert list(tfrecord.read(io.BytesIO(b"".join(map(records_in_python.frame, records))))) == records


@pytest.mark.parametrize("offset", [0, 8, 12, 20, -1])
def test_any_flipped_bit_is_noticed(offset: int) -> None:
    data = bytearray(records_in_python.frame(b"twelve bytes") + records_in_python.frame(b"more"))
    data[offset] ^= 1
    with pytest.raises(ValueError, match="a broken record"):
        list(tfrecord.read(io.BytesIO(bytes(data))))


def test_a_record_cut_short_is_noticed() -> None:
    framed_record = records_in_python.frame(b"twelve bytes")
    for length in range(1, len(framed_record)):
        with pytest.raises(ValueError, match="a broken record"):
            list(tfrecord.read(io.BytesIO(framed_record[:length])))


def test_bytes_are_tensorflows_own(tmp_path: Any) -> None:
    import tensorflow as tf

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
    ours = records_in_python.example(features)
    assert ours == example.SerializeToString(deterministic=True)
    with tf.io.TFRecordWriter(str(tmp_path / "theirs")) as writer:
        writer.write(ours)
    assert (tmp_path / "theirs").read_bytes() == records_in_python.frame(ours)
