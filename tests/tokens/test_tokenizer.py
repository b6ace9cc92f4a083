"""The encoder in C gives the ids of SentencePiece, for every text and every model it takes; without it only the time changes.

A million texts, by hand: python tests/tokens/test_tokenizer.py 1000000 spiece.model other.model
"""

import csv
import io
import random
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import sentencepiece

sys.path.insert(0, str(Path(__file__).parents[1]))  # where this file is run by hand

from fuzzed_texts import fuzzed
from hypothesis import given, settings
from hypothesis import strategies as st

from t5prep import _native
from t5prep.sources import sample
from t5prep.tokens import tokenizer
from t5prep.tokens.tokenizer import BlockEncoder

csv.field_size_limit(sys.maxsize)
SAMPLE = sample.tokenizer_path().read_bytes()


def trained(**options: object) -> bytes:
    """A small model of these texts, trained with SentencePiece's own options."""
    lines = [f"line {i}: café naïve == {i * 7919} __init__ <sep> 漢字かな {'ab' * (i % 9)}" for i in range(800)]
    model = io.BytesIO()
    trainer_options = {
        "vocab_size": 420,
        "hard_vocab_limit": False,
        "pad_id": 0,
        "eos_id": 1,
        "unk_id": 2,
        "bos_id": -1,
    }
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, minloglevel=2, **{**trainer_options, **options}
    )
    return model.getvalue()


MODELS = {
    "sample": {},
    "bytes and user-defined": {
        "byte_fallback": True,
        "user_defined_symbols": ["<sep>", "==", "=", "a▁b", "ＡＢ", "--"],
    },
    "no dummy prefix": {"add_dummy_prefix": False},
    "blanks stay": {"remove_extra_whitespaces": False},
    "pieces across words": {"split_by_whitespace": False, "byte_fallback": True},
    "nothing normalized": {"normalization_rule_name": "identity"},
    "lower case": {"normalization_rule_name": "nmt_nfkc_cf"},
}


@pytest.fixture(scope="module", params=MODELS)
def both(request: pytest.FixtureRequest) -> tuple[BlockEncoder, sentencepiece.SentencePieceProcessor]:
    options = MODELS[request.param]
    return pair(trained(**options) if options else SAMPLE)


def pair(model: bytes) -> tuple[BlockEncoder, sentencepiece.SentencePieceProcessor]:
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    encoder = BlockEncoder(model, processor)
    assert not encoder.slow
    return encoder, processor


def check(both: tuple[BlockEncoder, sentencepiece.SentencePieceProcessor], texts: list[str]) -> None:
    ours, theirs = both
    for text, a, b in zip(texts, ours.encode(texts).to_arrays(), theirs.encode(texts), strict=True):
        assert a.tolist() == b, text


def test_fuzzed_texts(both: tuple[BlockEncoder, sentencepiece.SentencePieceProcessor]) -> None:
    texts = list(fuzzed(random.Random(16), 1500))
    check(both, texts)
    check(both, texts)  # now from the table of words


@settings(max_examples=150, deadline=None)
@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=60), max_size=8))
def test_any_text(texts: list[str]) -> None:
    check(_SAMPLE_BOTH[0], texts)


_SAMPLE_BOTH = [pair(SAMPLE)]


def test_sums_that_are_taken_off(both: tuple[BlockEncoder, sentencepiece.SentencePieceProcessor]) -> None:
    """Beyond a sum of 100,000 SentencePiece begins anew; long before, rounding decides ties between segmentations."""
    chooser = random.Random(1)
    odd = ["-" * n for n in range(3, 40)] + ["#" * n for n in range(3, 40)] + ["." * 17, "xyxyxyxy", "0" * 12, "漢漢"]
    check(both, [" ".join(chooser.choices([*odd, "and", "the", "line"], k=20_000)) for _ in range(3)])
    check(both, ["z" * 60_000, "-" * 50_000, "漢" * 20_000, "a " * 50_000])


@pytest.mark.extra("seeds")
@pytest.mark.parametrize("model", ["t5_tokenizer/spiece.model", "small_tokenizer/test_sentencepiece.model"])
def test_real_texts(shared_data: Path, model: str) -> None:
    both = pair((shared_data / model).read_bytes())
    for number, texts in enumerate(real_texts(shared_data)):
        check(both, texts[number % 7 :: 7])  # all of them have been tried by hand


def real_texts(data: Path) -> Iterator[list[str]]:
    """The texts of every file there, however it is laid out: lines, and whole files."""
    for path in sorted(data.rglob("*")):
        if path.is_file() and path.suffix != ".model":
            text = path.read_bytes().decode("cp1252" if "cp1252" in path.name else "utf-8", "replace")
            yield [*text.splitlines(), text[:200_000]]


def test_threads_may_share_it() -> None:
    encoder, processor = _SAMPLE_BOTH[0]
    blocks = [list(fuzzed(random.Random(seed), 200)) for seed in range(6)]
    expected = [processor.encode(block) for block in blocks]
    with ThreadPoolExecutor(6) as threads:
        for _ in range(4):
            actual = threads.map(lambda block: [ids.tolist() for ids in encoder.encode(block).to_arrays()], blocks)
            assert list(actual) == expected


def test_the_sentencepiece_that_was_replicated() -> None:
    """Another SentencePiece may find other ids. Compare its unigram_model.cc (EncodeOptimized, GetUserDefinedScore,
    kUnkPenalty), normalizer.cc (Normalize, NormalizePrefix) and sentencepiece_processor.cc (EncodeOptimized) with those of
    tokenizer.REPLICATED, and change t5prep/native/ where they differ; then write the new version there.
    """
    assert sentencepiece.__version__ == tokenizer.REPLICATED


def test_other_models_are_left_to_sentencepiece() -> None:
    for options in ({"model_type": "bpe"}, {"model_type": "char"}, {"treat_whitespace_as_suffix": True}):
        model = trained(**options)
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        encoder = BlockEncoder(model, processor)
        assert "no unigram model" in encoder.slow
        texts = ["line 1: café", "", "x" * 50]
        assert [ids.tolist() for ids in encoder.encode(texts).to_arrays()] == processor.encode(texts)


def test_a_sentencepiece_that_counts_otherwise_is_noticed() -> None:
    class OtherProcessor(sentencepiece.SentencePieceProcessor):
        def encode(self, texts: list[str], **arguments: object) -> list[np.ndarray]:
            return [ids[::-1] for ids in super().encode(texts, **arguments)]

    encoder = BlockEncoder(SAMPLE, OtherProcessor(model_proto=SAMPLE))
    assert encoder.slow.startswith("it gives other ids than SentencePiece")
    assert (
        encoder.encode(["a b c"]).ids.tolist() == encoder._processor.encode(["a b c"], return_type="numpy")[0].tolist()
    )


def test_text_in_utf8_as_arrow_holds_it() -> None:
    encoder, processor = _SAMPLE_BOTH[0]
    data = "aßb c\n漢 d".encode()
    tokens = encoder.encode_utf8(data, np.array([0, 3, 3, 5, len(data)]))
    assert [ids.tolist() for ids in tokens.to_arrays()] == processor.encode(["aß", "", "b ", "c\n漢 d"])
    broken = b"a\xff\xf0\x9f b\xe2\x96"  # not UTF-8: no crash, and SentencePiece's own ids
    assert encoder.encode_utf8(broken, np.array([0, len(broken)])).ids.tolist() == processor.encode(broken)


@pytest.mark.parametrize("offsets", [[0, 9], [-1, 2], [2, 1], [0, 1 << 62], [1 << 62, 1 << 63 - 1], []])
def test_offsets_that_lie_are_refused(offsets: list[int]) -> None:
    with pytest.raises(ValueError, match="do not fit each other"):
        _SAMPLE_BOTH[0][0].encode_utf8(b"text", np.array(offsets, np.int64))


def test_bytes_that_are_no_model_are_refused() -> None:
    """Cut short, or with a byte changed: refused, or a model; never a crash."""
    chooser = random.Random(9)
    for _ in range(400):
        model = bytearray(SAMPLE[: chooser.randrange(len(SAMPLE))] if chooser.random() < 0.3 else SAMPLE)
        for _ in range(chooser.randrange(1, 4)):
            if model:
                model[chooser.randrange(len(model))] = chooser.randrange(256)
        try:
            unigram = _native.Unigram(bytes(model))
        except ValueError:
            continue
        unigram.encode("some text — ﷺ 漢".encode(), np.array([0, 20]))


if __name__ == "__main__":
    chooser = random.Random(2)
    pairs = {name: pair(Path(name).read_bytes()) for name in sys.argv[2:]}
    pairs |= {name: pair(trained(**options) if options else SAMPLE) for name, options in list(MODELS.items())[:2]}
    for _ in range(int(sys.argv[1]) // 10_000):
        texts = list(fuzzed(chooser, 10_000))
        for of_model in pairs.values():
            check(of_model, texts)
    print(f"{int(sys.argv[1]):,} texts have the same ids with {', '.join(pairs)}.")
