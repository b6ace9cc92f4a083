"""UL2's mixture of denoisers: each row by one of seven ways, by its name alone, and no token is lost."""

import dataclasses
from collections import Counter

import numpy as np
import pytest
import test_noise_spans_rows as rows_of
from raised import raises
from unpacked_records import restore

from t5prep.errors import UsageError
from t5prep.sources import sample
from t5prep.tasks.corpora.ul2 import DENOISERS
from t5prep.tasks.task import Denoiser
from t5prep.tokens import denoisers, noise_spans, ragged
from t5prep.tokens.tokenizer import SENTINELS, Tokenizer

TOKENIZER = Tokenizer(sample.tokenizer_path().read_bytes(), name="sample:")
MODES = [TOKENIZER.encode(ul2_denoiser.mode) for ul2_denoiser in DENOISERS.denoisers]


def batches(sizes, max_documents):
    """Documents of some tokens that are no sentinels, at most so many together."""
    for names, (ids, starts) in rows_of.batches(sizes, max_documents):
        yield names, ragged.Ragged(ids % 7000 + 5, starts)


def denoised(sizes, *, max_documents=3, inputs_length=64, seed=0):
    """All rows of some documents, whose tokens say where they stand: (name, inputs, labels)."""
    denoise = denoisers.Denoise(DENOISERS.denoisers, tokenizer=TOKENIZER, inputs_length=inputs_length, seed=seed)
    rows = []
    for ids, _, inputs, labels in denoise(batches(sizes, max_documents)):
        rows += zip(ids, inputs.to_arrays(), labels.to_arrays(), strict=True)
    return denoise, rows


def original(number, inputs, labels):
    """The tokens of a row before it was corrupted."""
    inputs = inputs[len(MODES[number]) :]
    if DENOISERS.denoisers[number].mean_span:
        return restore(inputs, labels, first_sentinel=TOKENIZER.sentinel(0))
    assert inputs[-1] == labels[-1] == TOKENIZER.eos_id
    return np.concatenate([inputs[:-1], labels[:-1]])


def test_no_token_is_lost_and_every_way_is_taken(monkeypatch):
    monkeypatch.setattr(noise_spans, "ROWS", 5)
    sizes = [3, 700, 0, 41, 1, 900, 260] * 20
    denoise, rows = denoised(sizes)
    counts = Counter(denoise.number_of(name) for name, _, _ in rows)
    assert set(counts) == set(range(7))
    assert max(counts.values()) < 2 * min(counts.values())
    flat = np.concatenate([original(denoise.number_of(name), *sides) for name, *sides in rows])
    np.testing.assert_array_equal(flat, [token % 7000 + 5 for _, ids in rows_of.documents(sizes) for token in ids])
    for name, inputs, labels in rows[:-1]:
        number = denoise.number_of(name)
        assert inputs[: len(MODES[number])].tolist() == MODES[number]
        assert len(inputs) == 64 or 0 < 64 - len(inputs) < 3, DENOISERS.denoisers[number]
        assert len(labels) <= 64


def test_rows_depend_on_seed_and_name_alone():
    sizes = [500, 20, 333, 1000]
    _, first = denoised(sizes, max_documents=1)
    _, regrouped_rows = denoised(sizes, max_documents=4)
    _, reseeded_rows = denoised(sizes, seed=1)
    row_lists = [
        [(name, inputs.tolist(), labels.tolist()) for name, inputs, labels in rows]
        for rows in (first, regrouped_rows, reseeded_rows)
    ]
    assert row_lists[0] == row_lists[1] != row_lists[2]


@pytest.mark.parametrize("denoiser", DENOISERS.denoisers)
@pytest.mark.parametrize("inputs_length", [32, 64, 512, 1024])
def test_rows_are_as_full_as_sentinels_allow(denoiser, inputs_length):
    raw, targets = denoisers.lengths(inputs_length, denoiser, mode_length=4)
    if not denoiser.mean_span:
        assert raw - (targets - 1) + 1 == inputs_length - 4
        assert targets - 1 == round(raw / 4)
        return
    hidden, spans = noise_spans.spans(raw, density=denoiser.density, mean_span=denoiser.mean_span)
    inputs = raw - hidden + spans + 1
    assert inputs <= inputs_length - 4
    assert spans <= SENTINELS
    if spans < SENTINELS - 1:
        assert inputs > inputs_length - 4 - 3
    assert targets == hidden + spans + 1


def test_table_1_of_the_paper():
    denoisers = [
        dataclasses.astuple(part) if dataclasses.is_dataclass(part) else tuple(part) for part in DENOISERS.denoisers
    ]
    assert denoisers == [
        ("[NLU]", 0.15, 3.0), ("[NLU]", 0.15, 8.0),
        ("[NLG]", 0.5, 3.0), ("[NLG]", 0.5, 8.0), ("[NLG]", 0.15, 64.0), ("[NLG]", 0.5, 64.0),
        ("[S2S]", 0.25, 0.0),
    ]  # fmt: skip


def test_a_short_rest_and_short_inputs():
    _, rows = denoised([1])
    ((name, inputs, labels),) = rows
    assert (name, len(labels) > 0, inputs[-1]) == ("doc0@0", True, 1)
    assert list(denoisers.Denoise(DENOISERS.denoisers, tokenizer=TOKENIZER, inputs_length=64, seed=0)([])) == []
    with raises(UsageError, "option.out-of-range"):
        denoisers.lengths(4, Denoiser("[S2S]", 0.25, 0), mode_length=3)
    assert ragged.full(np.zeros((2, 3), np.int32)).starts.tolist() == [0, 3, 6]
