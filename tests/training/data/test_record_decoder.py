"""The reader in C gives what TensorFlow's parser gives, for every layout, and so does that of unusual records."""

import numpy as np
import pytest
import tensorflow as tf
from raised import raises
from toy_dataset import write

from t5prep.dataset.tfrecord import PLACE, Records
from t5prep.errors import DatasetError
from t5prep.training.data import features, train_batches
from t5prep.training.data.features import RecordDecoder

SPEC = {"a": tf.io.FixedLenFeature([4], tf.int64), "b": tf.io.FixedLenFeature([2], tf.int64)}
LENGTHS = {"a": 4, "b": 2}


def serialized(**features: list[int]) -> bytes:
    lists = {name: tf.train.Feature(int64_list=tf.train.Int64List(value=ids)) for name, ids in features.items()}
    return tf.train.Example(features=tf.train.Features(feature=lists)).SerializeToString(deterministic=True)


def of_texts(*values: bytes) -> bytes:
    """A record whose ids are texts, as many as a row has ids."""
    texts = tf.train.Feature(bytes_list=tf.train.BytesList(value=[*values, *[b"7"] * (4 - len(values))]))
    ids = tf.train.Feature(int64_list=tf.train.Int64List(value=[1, 2]))
    return tf.train.Example(features=tf.train.Features(feature={"a": texts, "b": ids})).SerializeToString()


def unframed(records: list[bytes]) -> Records:
    """Records that are not framed: each is a page of its own."""
    places = np.array([(number, 0, len(record)) for number, record in enumerate(records)], PLACE)
    return Records(records, places)


@pytest.fixture
def by_c_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features.tfrecord, "parse", None)


def exact() -> RecordDecoder:
    return RecordDecoder(lengths=LENGTHS, fills={}, counts=LENGTHS)


def by_tensorflow(records: list[bytes]) -> dict:
    return {name: tf.cast(ids, tf.int32) for name, ids in tf.io.parse_example(records, SPEC).items()}


@pytest.mark.usefixtures("by_c_alone")
@pytest.mark.parametrize("id_limit", [2, 100, 128, 16_384, 250_112, 2**31])
def test_ids_of_all_sizes_are_those_of_tensorflow(id_limit: int) -> None:
    random = np.random.default_rng(id_limit)
    draw = lambda n: random.integers(-100 if id_limit > 2**20 else 0, id_limit, n).tolist()  # noqa: E731
    lengths = {"a": 61, "b": 9}
    spec = {name: tf.io.FixedLenFeature([length], tf.int64) for name, length in lengths.items()}
    records = [serialized(a=draw(61), b=draw(9), id=draw(3)) for _ in range(40)]
    read = RecordDecoder(lengths=lengths, fills={}, counts=lengths)(unframed(records))
    for ids, expected in zip(read, tf.io.parse_example(records, spec).values(), strict=True):
        assert np.array_equal(ids, tf.cast(expected, tf.int32))


@pytest.mark.parametrize("is_usual", [True, False])
def test_short_rows_are_filled_up(monkeypatch: pytest.MonkeyPatch, is_usual: bool) -> None:
    monkeypatch.setattr(*(features.tfrecord, "parse", None) if is_usual else (features, "decode_rows", lambda *_: 0))
    decoder = RecordDecoder(lengths=LENGTHS, fills={"b": -100}, counts={})
    a, b = decoder(unframed([serialized(a=[7], b=[]), serialized(a=[1, 2, 3, 4], b=[-1, 300])]))
    assert a.tolist() == [[7, 0, 0, 0], [1, 2, 3, 4]]
    assert b.tolist() == [[-100, -100], [-1, 300]]


def test_a_record_that_another_program_wrote_is_read_as_tensorflow_reads_it() -> None:
    """Merged protocol buffers: the later list replaces the earlier one, as a map's entries do."""
    records = [serialized(a=[1, 2, 3, 4], b=[1, 2]), serialized(a=[1, 2, 3, 4], b=[1, 2]) + serialized(a=[5, 6, 7, 8])]
    a, b = exact()(unframed(records))
    assert a.tolist() == by_tensorflow(records)["a"].numpy().tolist()
    assert b.tolist() == [[1, 2], [1, 2]]


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"\x0a",
        serialized(a=[1, 2, 3, 4]),
        serialized(a=[1, 2, 3], b=[1, 2]),
        serialized(a=[1] * 5, b=[1, 2]),
        b"\x12" * 40,
        of_texts(b"   42"),
        of_texts(b" 12 ", b"3_4"),
        of_texts(b"99999999999999999999", b"1"),
        tf.train.Example(
            features=tf.train.Features(feature={"a": tf.train.Feature(float_list=tf.train.FloatList(value=[1.0] * 4))})
        ).SerializeToString(),
    ],
    ids=[
        "empty",
        "cut",
        "without b",
        "short",
        "long",
        "no record",
        "text",
        "texts",
        "a large number as text",
        "floats",
    ],
)
def test_a_wrong_record_is_one_sentence(record: bytes) -> None:
    with raises(DatasetError, "dataset.damaged"):
        exact()(unframed([serialized(a=[1, 2, 3, 4], b=[1, 2]), record]))


@pytest.mark.parametrize("ids", [[], [b"1", b"2"]])
def test_a_record_without_one_id_is_refused(ids: list[bytes]) -> None:
    """An evaluation would else give its answer to another row."""
    feature = {"id": tf.train.Feature(bytes_list=tf.train.BytesList(value=ids))} if ids else {}
    records = unframed([tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()])
    with raises(DatasetError, "dataset.damaged", "d"):
        features.texts_of(records, "id", one_id=True, data="d")
    assert features.texts_of(records, "id", one_id=False) == [[ids]]


def test_no_bytes_make_it_read_outside_a_record() -> None:
    """Each record with one changed byte: it is refused, or has the ids that TensorFlow reads.

    TensorFlow's quick parser stops at a field that it does not know, which protobuf's own passes over.
    """
    random, intact_record = np.random.default_rng(0), serialized(a=[1, 200, 30_000, 4], b=[-100, 2], id=[5])
    for _ in range(2000):
        changed = np.frombuffer(intact_record, np.uint8).copy()
        changed[random.integers(len(changed))] = random.integers(256)
        record = changed[: random.integers(len(changed) - 3, len(changed) + 1)].tobytes()
        try:
            read = exact()(unframed([record]))
        except DatasetError:  # any other error is a failure
            continue
        try:
            expected = [by_tensorflow([record])[name][0] for name in "ab"]
        except (tf.errors.InvalidArgumentError, UnicodeDecodeError):  # its message has the record's bytes
            parsed_features = tf.train.Example.FromString(record).features.feature
            expected = [np.array(parsed_features[name].int64_list.value, np.int64).astype(np.int32) for name in "ab"]
        assert all(np.array_equal(ids[0], values) for ids, values in zip(read, expected, strict=True))


@pytest.mark.parametrize("layout", ["padded", "ragged"])
def test_batches_of_unusual_records_are_those_of_usual_ones(tmp_path, monkeypatch, layout: str) -> None:
    places = [str(tmp_path / name) for name in ("one", "two")]
    for path, count, length in zip(places, (41, 23), (12, 12 if layout == "padded" else 8), strict=True):
        write(tmp_path / path, {"train": [count, 17]}, length=length, every=4)
    data = places[:1] if layout == "padded" else places
    for start in (0, 5):
        options = {"global_batch": 6, "seed": 3, "start_step": start}
        by_c = list(train_batches(data, **options).take(30).as_numpy_iterator())
        monkeypatch.setattr(features, "decode_rows", lambda *_: 0)  # as for a record that it does not know
        fallback_batches = list(train_batches(data, **options).take(30).as_numpy_iterator())
        monkeypatch.undo()
        for batch, fallback_batch in zip(by_c, fallback_batches, strict=True):
            assert batch.keys() == fallback_batch.keys()
            assert all(np.array_equal(batch[name], fallback_batch[name]) for name in batch)
