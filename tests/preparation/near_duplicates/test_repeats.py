import random
from pathlib import Path

import pytest
from near_search import search, sketches_of

from t5prep.preparation.near_duplicates import clusters
from t5prep.preparation.near_duplicates.clusters import Repeats

WORDS = [f"word{i}" for i in range(3000)]


def _texts(count: int, *, words: int = 60, seed: int = 0) -> list[tuple[str, str]]:
    rng = random.Random(seed)
    return [(f"id{i}", " ".join(rng.choices(WORDS, k=words))) for i in range(count)]


def _edited(text: str, *, words: int, seed: int = 0) -> str:
    """A text with so many of its words replaced, side by side."""
    parts = text.split()
    start = random.Random(seed).randrange(len(parts) - words)
    return " ".join([*parts[:start], *(f"other{seed}x{i}" for i in range(words)), *parts[start + words :]])


def _corpus() -> list[tuple[str, str]]:
    texts = _texts(200)
    near = [(f"near{i}", _edited(texts[i][1], words=1, seed=i)) for i in range(0, 40, 2)]
    far = [(f"far{i}", _edited(texts[i][1], words=25, seed=i)) for i in range(1, 40, 2)]
    uppercase_texts = [(f"same{i}", texts[i][1].upper()) for i in range(0, 40, 4)]
    return texts + near + far + uppercase_texts


def _dropped(repeats: Repeats) -> dict[str, set[tuple[str, float]]]:
    """Id of each dropped row's digest → what was kept."""
    table = repeats.dropped.to_pylist()
    return {f"{row['high']:x}": {(row["kept_id"], round(row["similarity"], 3))} for row in table}


def test_texts_with_a_word_changed_repeat_each_other_and_others_do_not() -> None:
    repeats = search(sketches_of(_corpus(), block=50))
    assert len(repeats.dropped) == 20 + 10
    assert repeats.clusters == 20
    assert repeats.dropped["similarity"].to_pylist() == pytest.approx([0.836] * 30, abs=0.17)
    assert [cluster.rows for cluster in repeats.largest] == [3] * 10
    kept_ids = {row["kept_id"] for row in repeats.dropped.to_pylist()}
    assert not any(id.startswith("far") for id in kept_ids)


def test_the_same_rows_are_dropped_of_more_than_is_read_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = [*_corpus(), *((f"one{i}", _texts(1)[0][1]) for i in range(100))]
    expected = search(sketches_of(corpus, block=20))
    assert expected.largest[0].rows == 103
    monkeypatch.setattr(clusters, "GROUP_BYTES", 2000)
    repeats = search(sketches_of(corpus, block=20))
    assert repeats.dropped.equals(expected.dropped)
    assert repeats.largest == expected.largest


@pytest.mark.parametrize("block", [7, 1000])
@pytest.mark.parametrize("range_bytes", [5000, 1 << 24])
def test_the_same_rows_are_dropped_however_they_are_cut(block: int, range_bytes: int) -> None:
    corpus = _corpus()
    expected = search(sketches_of(corpus, block=64))
    repeats = search(sketches_of(corpus, block=block), range_bytes=range_bytes, group_bytes=range_bytes)
    assert repeats.dropped.equals(expected.dropped)
    assert repeats.largest == expected.largest


def test_the_same_rows_are_dropped_in_any_order() -> None:
    corpus = _corpus()
    expected = _dropped(search(sketches_of(corpus, block=64)))
    for seed in range(3):
        random.Random(seed).shuffle(corpus)
        assert _dropped(search(sketches_of(corpus, block=64))) == expected


def test_sketches_in_files_are_those_in_memory(tmp_path: Path) -> None:
    corpus = _corpus()
    repeats = search(sketches_of(corpus, block=33, folder=tmp_path), range_bytes=2000)
    assert repeats.dropped.equals(search(sketches_of(corpus, block=64)).dropped)


def test_the_row_with_more_text_is_kept() -> None:
    text = _texts(1)[0][1]
    for short_id, long_id in (("a", "b"), ("b", "a")):
        repeats = search(sketches_of([(short_id, text), (long_id, text + " and more")], block=1))
        assert repeats.dropped["kept_id"].to_pylist() == [long_id]


def test_evaluation_keeps_what_training_has_too() -> None:
    text = _texts(1)[0][1]
    for splits in (("train", "test"), ("test", "train")):
        parts = [
            split_sketch
            for split, words in zip(splits, ("", " of more words"), strict=True)
            for split_sketch in sketches_of([(split, text + words)], block=1, split=split, file=f"{split}.csv")
        ]
        file_repeats, id_repeats = (search(parts, drawn_by_id=drawn_by_id) for drawn_by_id in (False, True))
        assert file_repeats.dropped["split"].to_pylist() == ["train"]
        assert id_repeats.dropped["split"].to_pylist() == [splits[0]]
        assert file_repeats.across_splits == id_repeats.across_splits == 1


def test_rows_of_one_id_are_no_repeats() -> None:
    """A question with several right answers is as many rows of one id."""
    text = _texts(1)[0][1]
    repeats = search(sketches_of([("q", text), ("q", text), ("p", text)], block=2))
    (dropped,) = set(repeats.dropped["kept_id"].to_pylist())
    assert (dropped, len(repeats.dropped)) in {("q", 1), ("p", 2)}
    assert len(search(sketches_of([("q", text), ("q", text)], block=2)).dropped) == 0


def test_a_slice_has_the_rows_of_a_shard() -> None:
    repeats = search(sketches_of(_corpus(), block=64))
    half = 1 << 63
    parts = [repeats.slice("train", 0, half), repeats.slice("train", half, 1 << 64)]
    assert [len(part.dropped) for part in parts] != [0, 30]
    assert sum(len(part.dropped) for part in parts) == 30
    assert len(repeats.slice("test", 0, 1 << 64).dropped) == 0


def test_counts_are_added_up() -> None:
    base_repeats, other_repeats = (search(sketches_of(_texts(5, seed=seed) * 2, block=5)) for seed in (1, 2))
    assert base_repeats.clusters == 0  # the same ids twice
    first, second = (Repeats(base_repeats.dropped, 2, 1, (clusters.Cluster(size, "i", "f", 1),)) for size in (3, 5))
    merged_repeats = first.merge(second).merge(other_repeats)
    assert (merged_repeats.clusters, merged_repeats.across_splits) == (4, 2)
    assert [cluster.rows for cluster in merged_repeats.largest] == [5, 3]
