import contextlib
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t5prep.dataset import tfrecord
from t5prep.dataset.settings import Settings
from t5prep.prepare import bare_records, record_writer
from t5prep.tokens import packing, ragged
from t5prep.tokens.names import Names

ids = st.integers(0, (1 << 21) - 1)


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=20))
def test_unpack_reads_what_varint_writes(values):
    assert tfrecord.unpack(b"".join(map(tfrecord.varint, values))).tolist() == values


@given(st.lists(ids, max_size=50))
def test_unpack_reads_what_varints_writes(values):
    data, begins = tfrecord.varints(np.array(values, np.int64))
    assert tfrecord.unpack(data).tolist() == values
    assert len(begins) == len(values) + 1


@st.composite
def pairs(draw):
    side = st.lists(st.integers(1, 40_000), min_size=1, max_size=12)
    return draw(st.lists(st.tuples(st.text(min_size=1, max_size=150), side, side), max_size=12))


def flat(lists):
    begins = np.cumsum([0, *map(len, lists)])
    return np.array([token for one in lists for token in one], np.int32), begins


def settings(**choices):
    return Settings(task="text2text", options={}, input_length=16, target_length=12, **choices)


IN_C = [
    pytest.param(True, marks=pytest.mark.skipif(record_writer.write_records is None, reason="not built here")),
    False,
]


@pytest.mark.parametrize("in_c", IN_C)
@given(examples=pairs())
def test_bare_records_are_read_back(in_c, examples):
    names, inputs, labels = (list(column) for column in (zip(*examples, strict=True) if examples else ([], [], [])))
    write = record_writer.RecordWriter(settings(layout="packed"), pad_id=0, bare=True)
    written = write(names, flat(inputs), flat(labels), [[]] * len(names), order=np.arange(len(names)))
    with pytest.MonkeyPatch.context() as patch:
        if not in_c:
            patch.setattr(bare_records, "read_records", None)
        bare = bare_records.read(
            written.data,
            sizes=written.sizes.astype(np.int64),
            inputs=np.array(list(map(len, inputs)), np.int64),
            labels=np.array(list(map(len, labels)), np.int64),
        )
    assert list(bare.ids) == names
    assert [bare.ids[i] for i in range(len(names))] == names
    assert [side.tolist() for side in bare.inputs.apart()] == inputs
    assert [side.tolist() for side in bare.labels.apart()] == labels


@pytest.mark.skipif(record_writer.write_records is None, reason="not built here")
@given(examples=pairs(), data=st.data())
def test_c_refuses_records_that_are_broken(examples, data):
    """A byte that is cut off or another one never reads outside of the records."""
    examples += [("id", [1, 300, 40_000], [1])]
    names, inputs, labels = (list(column) for column in zip(*examples, strict=True))
    write = record_writer.RecordWriter(settings(layout="packed"), pad_id=0, bare=True)
    written = write(names, flat(inputs), flat(labels), [[]] * len(names), order=np.arange(len(names)))
    with pytest.raises(ValueError, match="offsets"):
        bare_records.read_records(written.data[:-1], written.sizes)
    broken = bytearray(written.data)
    broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ValueError):
        bare_records.read_records(bytes(broken), written.sizes)


@pytest.mark.skipif(record_writer.write_records is None, reason="the writer in C is not built here")
@pytest.mark.parametrize("layout", ["padded", "ragged", "packed"])
@given(examples=pairs(), masks=st.booleans(), seed=st.integers(0, 99))
def test_c_writes_the_bytes_that_numpy_writes(layout, examples, masks, seed):
    examples += [
        ("", [1], [1]),
        ("x" * 70_000, [127, 128, 16_383, 16_384, (1 << 21) - 1], [40_000] * 12),
        ("e", [], []),
    ]
    names, inputs, labels = (list(column) for column in zip(*examples, strict=True))
    masks = masks and layout == "padded"
    write = record_writer.RecordWriter(settings(layout=layout, masks=masks), pad_id=3, bare=layout == "packed")
    order = np.random.default_rng(seed).permutation(len(names))
    lists = flat(inputs), flat(labels)
    written = write(names, *lists, [[]] * len(names), order=order)
    records = write._write(names, *lists, [[]] * len(names))
    assert written.data == b"".join(records[row] for row in order)
    assert written.sizes.tolist() == [len(records[row]) for row in order]
    list(tfrecord.read(io.BytesIO(written.data)))


@pytest.mark.skipif(record_writer.write_records is None, reason="the writer in C is not built here")
@pytest.mark.parametrize("starts", [[0, 5], [-1, 2], [2, 0], [0, 1, 2]])
@pytest.mark.parametrize("place", [1, 3, 5])
def test_c_refuses_starts_that_lie(place, starts):
    good = [
        b"id",
        np.array([0, 2]),
        np.arange(4, dtype=np.int32),
        np.array([0, 4]),
        np.arange(4, dtype=np.int32),
        np.array([0, 4]),
    ]
    record_writer.write_records(*good, np.array([0]), (0, 0), (0, -100), False)
    good[place] = np.array(starts)
    with pytest.raises(ValueError, match="offsets"):
        record_writer.write_records(*good, np.array([0]), (0, 0), (0, -100), False)
    good[place] = np.array([0, 2])
    with pytest.raises(ValueError, match="offsets"):
        record_writer.write_records(*good, np.array([1]), (0, 0), (0, -100), False)


@pytest.mark.parametrize("in_c", IN_C)
@given(examples=pairs())
def test_packed_records_hold_the_rows_padded(in_c, examples):
    sides = [
        [np.array(side, np.int32) for side in column] for column in zip(*[one[1:] for one in examples], strict=True)
    ]
    inputs, labels = sides or ([], [])
    rows = packing.pack(list(zip(inputs, labels, strict=True)), room=(16, 12), pad_id=3, label_pad=-100)
    names = [[] for _ in rows["input_ids"]]
    for (name, _, _), row in zip(examples, rows["example_rows"], strict=True):
        names[row].append(name)
    bare = bare_records.Bare(Names.of([name for name, _, _ in examples]), ragged.of(inputs), ragged.of(labels))
    with pytest.MonkeyPatch.context() as patch:
        if not in_c:
            patch.setattr(record_writer, "write_packed", None)
        patch.setattr(record_writer, "ROWS_A_PART", 3)
        parts = list(record_writer.PackedWriter(settings(layout="packed"), pad_id=3).parts(bare, rows["example_rows"]))
    written = record_writer.Records(
        b"".join(part.data for part in parts), np.concatenate([part.sizes for part in parts])
    )
    records = list(tfrecord.read(io.BytesIO(written.data)))
    assert [len(record) + tfrecord.FRAME_BYTES for record in records] == written.sizes.tolist()
    for record, row in zip(records, range(len(names)), strict=True):
        parsed = tfrecord.parse(record)
        assert list(parsed) == ["id", *packing.FEATURES], "sorted, as TensorFlow writes them"
        assert [id.decode("utf-8", "surrogatepass") for id in parsed["id"]] == names[row]
        for feature in packing.FEATURES:
            assert parsed[feature] == rows[feature][row].tolist()


@pytest.mark.skipif(record_writer.write_packed is None, reason="not built here")
@pytest.mark.parametrize(
    ("order", "row_starts"), [([0, 2], [0, 2]), ([-1], [0, 1]), ([0], [0, 2]), ([0], [1, 0]), ([0, 0, 0], [0, 3])]
)
def test_c_refuses_rows_that_lie(order, row_starts):
    side = np.arange(6, dtype=np.int32), np.array([0, 3, 6])
    whole = b"ab", np.array([0, 1, 2]), *side, *side
    record_writer.write_packed(*whole, np.array([1, 0]), np.array([0, 2]), (6, 6), (0, -100))
    with pytest.raises(ValueError, match="offsets"):
        record_writer.write_packed(*whole, np.array(order), np.array(row_starts), (6, 6), (0, -100))


@given(st.text(min_size=1, max_size=200), st.lists(st.binary(max_size=200), max_size=4), st.lists(ids, max_size=300))
def test_a_feature_is_replaced_and_the_others_stay(id, values, tokens):
    packed, _ = tfrecord.varints(np.array(tokens, np.int64))
    record = tfrecord.example(
        tfrecord.bytes_feature("id", [id.encode("utf-8", "surrogatepass")])
        + tfrecord.int64_feature("input_ids", packed)
    )
    changed = tfrecord.with_bytes(record, "references", values)
    assert tfrecord.parse(changed) == {**tfrecord.parse(record), "references": values}
    assert tfrecord.with_bytes(changed, "references", [b"x"]) == tfrecord.with_bytes(record, "references", [b"x"])
    raw = tfrecord.raw_features(changed)
    assert raw["id"] == [id.encode("utf-8", "surrogatepass")]
    assert tfrecord.unpack(b"".join(raw["input_ids"])).tolist() == tokens
    assert raw["references"] == values
