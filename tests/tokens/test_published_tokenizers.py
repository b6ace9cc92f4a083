"""Tokenizers as they are published without a SentencePiece model: ByT5's bytes, and a tokenizer.json alone."""

import functools
import json
import re
from pathlib import Path
from typing import Any

import encoders
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from raised import raises

from t5prep.errors import TokenizerError
from t5prep.io import model_files
from t5prep.tokens import huggingface_files, loading, model_proto, sentencepiece_json
from t5prep.tokens.tokenizer import Tokenizer

BYTES = Tokenizer(model_proto.model(), name="bytes")
TEXTS = ["Ça coûte 12,50 € — vraiment?", "ﬁ Ⅷ １２３ ½", "a\tb\nc", "x  y   z", "don't (maybe) [x]", "€$+<=>^`|~ 3.14"]
ROOT = Path(__file__).parents[2]
WRITTEN = (Path(__file__), ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
LINES = [
    line
    for path in WRITTEN
    for line in path.read_text().splitlines()
    if not re.search("extra_id|</s>|<pad>|<unk>", line)
]


@settings(deadline=None)
@given(st.text())
def test_byt5s_ids_are_the_bytes_and_three(text: str) -> None:
    ids = BYTES.encode(text)
    assert ids == [byte + 3 for byte in text.encode()]
    assert BYTES.decode(ids) == text


def test_byt5s_vocabulary_is_its_embeddings() -> None:
    assert (BYTES.vocab_size, BYTES.size, BYTES.padded_size) == (259, 259, 384)
    assert (BYTES.pad_id, BYTES.eos_id, BYTES.unk_id) == (0, 1, 2)
    # Its sentinels are its last bytes (transformers, model_doc/byt5), which are in no text.
    assert [BYTES.sentinel(number) for number in (0, 1, 2)] == [258, 257, 256]
    assert BYTES.decode([100, 257, 101, 1]) == "a <extra_id_1> b </s>"
    assert BYTES.special("é".encode()[0] + 3) is None
    assert BYTES.special(259) == "<unused_259>"


def test_a_byt5_is_written_as_transformers_loads_it(tmp_path: Path) -> None:
    import transformers

    huggingface_files.write(tmp_path, BYTES, config={"model_type": "t5"})
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert type(theirs).__name__ == "ByT5Tokenizer"
    for text in TEXTS:
        assert theirs(text)["input_ids"] == [*BYTES.encode(text), BYTES.eos_id]
    assert loading.load(str(tmp_path)).model == BYTES.model
    assert json.loads((tmp_path / "config.json").read_text())["vocab_size"] == 384


def trained(*, digits: bool = True, sentinels: str = "") -> dict[str, Any]:
    """As the Italian pre-training trains its tokenizer (gsarti/t5-flax-gcp), on this file and the README."""
    document: dict[str, Any] = json.loads(_trained(digits=digits))
    numbers = {"": [], "down": range(99, -1, -1), "up": range(100)}[sentinels]
    document["model"]["vocab"] += [[f"<extra_id_{number}>", 0.0] for number in numbers]
    return document


@functools.cache
def _trained(*, digits: bool) -> str:
    import tokenizers
    from tokenizers import Regex, models, normalizers, pre_tokenizers

    tokenizer = tokenizers.Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    splitters = [
        pre_tokenizers.Metaspace(),
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.Punctuation(),
    ]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(splitters if digits else splitters[:1])
    special = ["<pad>", "</s>", "<unk>"]
    # Characters first, and no piece that goes across a place where words are split.
    learned = sorted(encoders.unigram_pieces(LINES, size=2000, unknown="<unk>"), key=lambda piece: len(piece[0]) > 1)
    split = tokenizer.pre_tokenizer.pre_tokenize_str
    word_pieces = [
        (piece, score) for piece, score in learned if len(piece) == 1 or len(split(piece.replace("▁", " "))) == 1
    ]
    pieces = [*((piece, 0.0) for piece in special), *word_pieces][:900]
    tokenizer.model = models.Unigram(pieces, unk_id=special.index("<unk>"))
    tokenizer.add_special_tokens(special)
    return tokenizer.to_str()


def convert(document: dict[str, Any]) -> Tokenizer:
    return Tokenizer(sentencepiece_json.convert(document, name="it"), name="it")


@pytest.mark.parametrize("digits", [True, False])
def test_a_tokenizer_json_gives_the_ids_of_its_own_library(digits: bool) -> None:
    import tokenizers

    document = trained(digits=digits)
    ours, theirs = convert(document), tokenizers.Tokenizer.from_str(json.dumps(document))
    for text in (*TEXTS, *LINES):
        text = " ".join(text.split(" ")).strip()
        ids, expected = ours.encode(text), theirs.encode(text, add_special_tokens=False).ids
        assert ours.processor.decode(ids) == ours.processor.decode(expected)
        # They add scores up as float32 and as float64: of two segmentations as likely, either may win.
        likelihoods = [sum(map(ours.processor.get_score, token_ids)) for token_ids in (ids, expected)]
        assert ids == expected or likelihoods[0] == pytest.approx(likelihoods[1], abs=1e-3), text
    assert ours.size == ours.vocab_size + 100
    assert (ours.pad_id, ours.eos_id, ours.unk_id) == (0, 1, 2)
    assert ours.encode("</s>") != [1]  # text is only text


def test_t5s_own_sentinels_are_above_the_pieces() -> None:
    plain, listed = convert(trained()), convert(trained(sentinels="down"))
    assert listed.model == plain.model
    assert listed.sentinel(0) == plain.vocab_size + 99


def test_what_we_write_is_what_we_read(tmp_path: Path) -> None:
    sample = loading.load("sample:")
    (tmp_path / "tokenizer.json").write_text(json.dumps(huggingface_files.tokenizer_json(sample)))
    reloaded_tokenizer = loading.load(str(tmp_path))
    assert reloaded_tokenizer.size == sample.size
    assert reloaded_tokenizer.facts.normalizer == "nmt_nfkc"
    for text in (*TEXTS, *LINES):
        assert reloaded_tokenizer.encode(text) == sample.encode(text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda document: document["model"].update(type="BPE"), ("tokenizer.unsupported-json",)),
        (lambda document: document["model"].update(type="WordPiece"), ("tokenizer.unsupported-json",)),
        (
            lambda document: document["normalizer"]["normalizers"].append({"type": "Lowercase"}),
            ("tokenizer.unsupported-json", "Lowercase"),
        ),
        (
            lambda document: document["pre_tokenizer"]["pretokenizers"].append({"type": "ByteLevel"}),
            ("tokenizer.unsupported-json",),
        ),
        (lambda document: document["pre_tokenizer"]["pretokenizers"].pop(0), ("tokenizer.unsupported-json",)),
        (
            lambda document: document["model"]["vocab"].append(["a-b", -9.0]),
            ("tokenizer.unsupported-json",),
        ),
        (lambda document: document["model"].update(unk_id=None), ("tokenizer.unsupported-json",)),
        (lambda document: document["model"].pop("vocab"), ("tokenizer.unsupported-json",)),
        (lambda document: document["model"].update(vocab=[["a"]]), ("tokenizer.damaged",)),
        (lambda document: document.pop("model"), ("tokenizer.damaged",)),
    ],
)
def test_what_sentencepiece_does_otherwise_is_refused(change: Any, message: tuple[str, ...]) -> None:
    document = trained()
    change(document)
    with raises(TokenizerError, *message, "tokenizer.json"):
        convert(document)


def test_sentinels_in_another_order_are_refused() -> None:
    with raises(TokenizerError, "tokenizer.unsupported-json"):
        convert(trained(sentinels="up"))


def test_which_file_makes_the_tokenizer(tmp_path: Path) -> None:
    files = model_files.in_directory(tmp_path, name="mine")
    assert not files.names
    with raises(TokenizerError, "tokenizer.missing-file"):
        loading.load(str(tmp_path))
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "ByT5Tokenizer"}')
    assert loading.load(str(tmp_path)).is_bytes
    (tmp_path / "tokenizer.json").write_text(json.dumps(trained()))
    assert loading.load(str(tmp_path)).vocab_size == 900
    assert loading.load(str(tmp_path / "tokenizer.json")).vocab_size == 900
    sample = loading.load("sample:")
    (tmp_path / "spiece.model").write_bytes(sample.model)
    with raises(TokenizerError, "tokenizer.file-conflict", "spiece.model"):
        loading.load(str(tmp_path))
    assert loading.load(str(tmp_path / "spiece.model")).vocab_size == sample.vocab_size
    (tmp_path / "tokenizer.json").write_text(json.dumps(huggingface_files.tokenizer_json(sample)))
    (tmp_path / "tokenizer_config.json").unlink()
    assert loading.load(str(tmp_path)).model == sample.model
