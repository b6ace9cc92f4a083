from collections import Counter
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from raised import raises
from unpacked_records import restore

from t5prep.errors import UsageError
from t5prep.tokens import noise_spans
from t5prep.tokens.tokenizer import SENTINELS
from tests import spans_in_numpy

FIRST = 32099
EOS = 1


def rows(count, length, *, seed=0):
    return np.random.default_rng(seed).integers(3, 32000, (count, length)).astype(np.int32)


@pytest.mark.parametrize(
    ("inputs_length", "raw", "targets"),
    [(512, 568, 114), (256, 284, 58), (128, 141, 29), (64, 70, 14), (1024, 1137, 229)],
)
def test_lengths_are_t5s(inputs_length, raw, targets):
    assert noise_spans.lengths(inputs_length) == (raw, targets)
    inputs, labels = noise_spans.corrupt(rows(2, raw), keys=noise_spans.keys(["a", "b"]), first_sentinel=FIRST)
    assert inputs.shape == (2, inputs_length)
    assert labels.shape == (2, targets)


def test_half_density_keeps_the_targets_as_short_as_the_inputs():
    raw, targets = noise_spans.lengths(64, density=0.5)
    assert targets <= 64
    assert noise_spans.corrupt(rows(1, raw), keys=noise_spans.keys("a"), first_sentinel=FIRST, density=0.5)[
        1
    ].shape == (1, targets)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"inputs_length": 2}, ("option.out-of-range",)),
        ({"inputs_length": 2048}, ("option.excess-spans", "100")),
        ({"inputs_length": 512, "density": 1.0}, ("option.out-of-range",)),
        ({"inputs_length": 512, "mean_span": 0.5}, ("option.out-of-range",)),
    ],
)
def test_lengths_that_cannot_be(options, says):
    with raises(UsageError, *says):
        noise_spans.lengths(options.pop("inputs_length"), **options)


@given(
    length=st.integers(1, 700),
    density=st.floats(0.01, 0.99),
    mean_span=st.floats(1, 20),
    seed=st.integers(0, 2**31),
    eos_at=st.sets(st.integers(0, 699)),
)
def test_corrupt_is_invertible_and_every_mask_has_t5s_shape(length, density, mean_span, seed, eos_at):
    tokens = rows(3, length, seed=seed % 97)
    tokens[:, [position for position in eos_at if position < length]] = EOS
    keys = noise_spans.keys(["x", "y", "z"], seed=seed)
    hidden, count = noise_spans.spans(length, density=density, mean_span=mean_span)
    if length > 1:
        mask = spans_in_numpy.noise_mask(length, keys=keys, density=density, mean_span=mean_span)
        assert (mask.sum(axis=1) == hidden).all()
        assert not mask[:, 0].any()
        assert mask[:, -1].all()
        starts = mask & ~np.pad(mask, [(0, 0), (1, 0)])[:, :-1]
        assert (starts.sum(axis=1) == count).all()
    if count > SENTINELS:
        return
    inputs, targets = noise_spans.corrupt(
        tokens, keys=keys, first_sentinel=FIRST, eos_id=EOS, density=density, mean_span=mean_span
    )
    assert (inputs[:, -1] == EOS).all()
    assert (targets[:, -1] == EOS).all()
    for row in range(3):
        padded = np.pad(inputs[row], (0, 9))
        labels = np.pad(targets[row], (0, 4), constant_values=-100)
        np.testing.assert_array_equal(restore(padded, labels, first_sentinel=FIRST), tokens[row])


def test_sentinels_descend_and_both_sides_name_the_same():
    inputs, targets = noise_spans.corrupt(rows(4, 141), keys=noise_spans.keys("abcd"), first_sentinel=FIRST)
    expected = list(range(FIRST, FIRST - 7, -1))
    for side in (*inputs, *targets):
        assert [int(token) for token in side if token >= 32000] == expected
    assert (targets[:, 0] == FIRST).all()


@given(
    length=st.integers(1, 700),
    density=st.floats(0.02, 0.9),
    mean_span=st.floats(1, 12),
    seed=st.integers(0, 1 << 40),
)
def test_c_hides_the_spans_that_numpy_hides(length, density, mean_span, seed):
    tokens, options = rows(3, length), {"density": density, "mean_span": mean_span}
    keys = noise_spans.keys(["a", "b", "c"], seed=seed)
    in_c = noise_spans.corrupt(tokens, keys=keys, first_sentinel=FIRST, eos_id=1, **options)
    in_numpy = spans_in_numpy.corrupt(tokens, keys=keys, first_sentinel=FIRST, eos_id=1, **options)
    for ours, theirs in zip(in_c, in_numpy, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_row_depends_on_its_own_key_only():
    tokens = rows(600, 70)
    keys = noise_spans.keys([f"row {n}" for n in range(600)])
    inputs, targets = noise_spans.corrupt(tokens, keys=keys, first_sentinel=FIRST)
    for index in (0, 255, 256, 599):
        alone = noise_spans.corrupt(tokens[index : index + 1], keys=keys[index : index + 1], first_sentinel=FIRST)
        np.testing.assert_array_equal(alone[0][0], inputs[index])
        np.testing.assert_array_equal(alone[1][0], targets[index])
    backwards = noise_spans.corrupt(tokens[::-1], keys=keys[::-1], first_sentinel=FIRST)
    np.testing.assert_array_equal(backwards[0][::-1], inputs)


def test_the_draw_never_changes():
    """Shards prepared with another version, or on another machine, must come out the same."""
    keys = noise_spans.keys(["document 1", "document 2"], seed=7)
    assert [f"{key:016x}" for key in keys] == ["43117bef716176fc", "85f6a51baafe7550"]
    mask = spans_in_numpy.noise_mask(30, keys=keys, density=0.3)
    assert ["".join(".#"[int(hidden)] for hidden in row) for row in mask] == [
        ".#...................#.#######",
        "....#..............####...####",
    ]


def test_all_masks_are_equally_likely():
    """7 tokens, 3 of them hidden in 2 spans: 3 cuts of the kept × 2 of the hidden = 6 masks."""
    keys = noise_spans.keys(map(str, range(12000)))
    masks = Counter(row.tobytes() for row in spans_in_numpy.noise_mask(7, keys=keys, density=0.43, mean_span=1.5))
    assert len(masks) == 3 * 2
    # Chi-squared with 5 degrees of freedom; 20.5 has probability 0.001, and the keys are fixed.
    assert sum((count - 2000) ** 2 / 2000 for count in masks.values()) < 20.5


def test_seeds_and_ids_give_other_masks():
    keys = np.concatenate([noise_spans.keys(["a", "b"], seed=seed) for seed in range(3)])
    masks = spans_in_numpy.noise_mask(568, keys=keys)
    assert all(
        (masks[first_index] != masks[second_index]).any() for first_index, second_index in combinations(range(6), 2)
    )


def test_restore_refuses_sides_that_do_not_belong_together():
    inputs, targets = noise_spans.corrupt(rows(2, 70), keys=noise_spans.keys("ab"), first_sentinel=FIRST)
    with pytest.raises(ValueError, match="cut"):
        restore(inputs[0][:-1], targets[0], first_sentinel=FIRST)
    with pytest.raises(ValueError, match="sentinels"):
        restore(inputs[0], targets[0][1:], first_sentinel=FIRST)


@pytest.mark.extra("seeds")
def test_real_text_comes_back(shared_data: Path):
    import sentencepiece as spm

    model, text = shared_data / "t5_tokenizer" / "spiece.model", shared_data / "english" / "wikitext2_valid.txt"
    pieces = spm.SentencePieceProcessor(model_file=str(model))
    ids = np.array(pieces.encode(text.read_text(encoding="utf-8")[:300_000]), np.int32)
    raw, _ = noise_spans.lengths(512)
    tokens = ids[: len(ids) // raw * raw].reshape(-1, raw)
    inputs, targets = noise_spans.corrupt(
        tokens, keys=noise_spans.keys(map(str, range(len(tokens)))), first_sentinel=FIRST, eos_id=EOS
    )
    restored_rows = [restore(*row, first_sentinel=FIRST) for row in zip(inputs, targets, strict=True)]
    np.testing.assert_array_equal(np.stack(restored_rows), tokens)
