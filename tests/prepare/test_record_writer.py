import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from t5prep.dataset import tfrecord
from t5prep.prepare import record_writer
from t5prep.prepare.settings import Settings
from t5prep.tokens import packing

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


@given(pairs())
def test_bare_records_are_read_back(examples):
    names, inputs, labels = (list(column) for column in (zip(*examples, strict=True) if examples else ([], [], [])))
    write = record_writer.RecordWriter(settings(layout="packed"), pad_id=0, bare=True)
    written = write(names, flat(inputs), flat(labels), [[]] * len(names))
    bare = record_writer.read_bare(
        b"".join(written),
        sizes=np.array(list(map(len, written)), np.int64),
        inputs=np.array(list(map(len, inputs)), np.int64),
        labels=np.array(list(map(len, labels)), np.int64),
    )
    assert bare.ids == names
    assert [side.tolist() for side in bare.inputs] == inputs
    assert [side.tolist() for side in bare.labels] == labels


@given(pairs())
def test_packed_records_hold_the_rows_padded(examples):
    rows = packing.pack(
        [(np.array(inputs, np.int32), np.array(labels, np.int32)) for _, inputs, labels in examples], room=(16, 12)
    )
    names = [[] for _ in rows["input_ids"]]
    for (name, _, _), row in zip(examples, rows["example_rows"], strict=True):
        names[row].append(name)
    written = record_writer.PackedWriter(settings(layout="packed"), pad_id=0)(names, rows)
    for record, row in zip(written, range(len(names)), strict=True):
        parsed = tfrecord.parse(record[12:-4])
        assert list(parsed) == ["id", *packing.FEATURES], "sorted, as TensorFlow writes them"
        assert [id.decode("utf-8", "surrogatepass") for id in parsed["id"]] == names[row]
        for feature in packing.FEATURES:
            assert parsed[feature] == rows[feature][row].tolist()


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
