"""Encoders' tokenizers: the ids of transformers, from every form in which models are published."""

import base64
import concurrent.futures
import json
import os

import numpy as np
import pytest
from raised import raises

from t5prep.errors import TokenizerError
from t5prep.tokens import encoder_tokenizer, loading, model_proto, ragged
from t5prep.tokens.newlines import decode_input
from t5prep.tokens.ragged import Frame
from t5prep.tokens.tokenizer import Tokenizer
from tests import encoders

TEXTS = [
    *encoders.SENTENCES[:5],
    "A Gorgeous movie!! (it's)",
    "  two  blanks\tand\na line ",
    "",
    "🙂🙂 ﬁ\u200b\x00 ",
    "naïve Ünïcödé 中文中",
]
WORDS_WITHOUT_UNKNOWN = {"type": "WordPiece", "vocab": {"a": 0}, "unk_token": "no", "max_input_chars_per_word": 9}
WORDS_WITHOUT_UNKNOWN["continuing_subword_prefix"] = "#"


@pytest.fixture(scope="module", params=["uncased", "cased", "roberta", "xlm_roberta", "modernbert", "mmbert"])
def folder(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizers") / request.param
    if "cased" in request.param:
        return encoders.bert(path, lowercase="un" in path.name)
    return getattr(encoders, request.param)(path)


def test_ids_are_those_of_transformers(folder):
    from transformers import AutoTokenizer

    ours, theirs = loading.load(str(folder)), AutoTokenizer.from_pretrained(folder)
    expected = theirs(TEXTS, add_special_tokens=False)["input_ids"]
    assert [ids.tolist() for ids in ours.encode_all(TEXTS)] == expected
    assert (ours.size, ours.pad_id, ours.unk_id) == (len(theirs), theirs.pad_token_id, theirs.unk_token_id)


def test_special_tokens_around_texts_are_those_of_transformers(folder):
    from transformers import AutoTokenizer

    ours, theirs = loading.load(str(folder)), AutoTokenizer.from_pretrained(folder)
    first, second = ours.encode_all(["a movie", "charming"])
    for texts, ids in ((["a movie"], [first]), (["a movie", "charming"], [first, second])):
        assert (
            ragged.framed(ragged.of(ids), np.array([0, len(ids)]), ours.frame).ids.tolist()
            == theirs(*texts)["input_ids"]
        )


def test_a_euroberts_texts_have_a_token_before_them_and_none_behind(tmp_path):
    from transformers import AutoTokenizer

    path = encoders.eurobert(tmp_path / "eurobert")
    ours, theirs = loading.load(str(path)), AutoTokenizer.from_pretrained(path)
    expected = theirs(TEXTS, add_special_tokens=False)["input_ids"]
    assert [ids.tolist() for ids in ours.encode_all(TEXTS)] == expected
    first, second = ours.encode_all(["a movie", "charming 1234"])
    rows = ragged.framed(ragged.of([first, first, second]), np.array([0, 1, 3]), ours.frame)
    assert [row.tolist() for row in rows.to_arrays()] == theirs(["a movie"])["input_ids"] + [
        theirs("a movie", "charming 1234")["input_ids"]
    ]
    assert (ours.size, ours.pad_id, ours.eos_id) == (len(theirs), theirs.eos_token_id, theirs.bos_token_id)
    assert loading.of_content(ours.model, name="again").encode("a movie") == first.tolist()
    assert not {ours.pad_id, ours.eos_id} & set(ours.encode("a <|end_of_text|> <|begin_of_text|>"))


def test_a_saved_tokenizer_json_gives_the_same_ids(folder, tmp_path):
    from transformers import AutoTokenizer

    AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path)
    ours, saved = loading.load(str(folder)), loading.load(str(tmp_path / "tokenizer.json"))
    assert saved.frame == ours.frame
    assert [a.tolist() for a in saved.encode_all(TEXTS)] == [b.tolist() for b in ours.encode_all(TEXTS)]


def test_text_never_becomes_a_special_token(folder):
    ours = loading.load(str(folder))
    special = {ours.pad_id, ours.eos_id, *ours.frame.first}
    for text in ("a [SEP] b [PAD] [CLS]", "a </s> b <pad> <s>"):
        assert not special & set(ours.encode(text))


def test_decoding_writes_special_tokens_and_leaves_padding_out(folder):
    ours = loading.load(str(folder))
    ids = [*ours.frame.first, *ours.encode("a charming movie"), *ours.frame.last, ours.pad_id]
    begin, end = ours.piece(ours.frame.first[0]), ours.piece(ours.eos_id)
    assert ours.decode(ids) == f"{begin} a charming movie {end}"


def test_the_same_files_have_the_same_sha256_and_their_content_is_enough(folder):
    ours = loading.load(str(folder))
    reloaded_tokenizer = loading.of_content(ours.model, name="again")
    assert ours.sha256 == reloaded_tokenizer.sha256 == loading.load(str(folder)).sha256
    assert reloaded_tokenizer.encode("a movie") == ours.encode("a movie")


def test_a_t5s_tokenizer_stays_one():
    ours = loading.load("sample:")
    assert type(ours) is Tokenizer
    assert ours.frame == Frame((), (ours.eos_id,), (ours.eos_id,))


def test_a_vocabulary_without_special_tokens_is_one_sentence(tmp_path):
    (tmp_path / "vocab.txt").write_text("a\nb\n")
    with raises(TokenizerError, "tokenizer.damaged"):
        loading.load(str(tmp_path))


def test_a_damaged_tokenizer_json_is_one_sentence(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    (tmp_path / "tokenizer.json").write_text('{"added_tokens": []}')
    with raises(TokenizerError, "tokenizer.damaged"):
        loading.load(str(tmp_path))


DOUBLE = {"type": "Replace", "pattern": {"Regex": "."}, "content": "aa"}
LONG_MAP = (4096).to_bytes(4, "little") + bytes(4096) + b"a" * 5000 + b"\0"


def test_a_sentencepiece_model_that_makes_a_page_of_a_character_is_one_sentence():
    pieces = [model_proto.Piece("<pad>", kind=model_proto.CONTROL), model_proto.Piece("</s>", kind=model_proto.CONTROL)]
    pieces += [model_proto.Piece("<unk>", kind=model_proto.UNKNOWN), model_proto.Piece("a", -1.0)]
    model = model_proto.build(pieces, model_proto.Normalization("precompiled", LONG_MAP))
    with raises(TokenizerError, "tokenizer.invalid-sentencepiece"):
        loading.of_content(model, name="it")


@pytest.mark.parametrize(
    ("part", "value", "says"),
    [
        ("normalizer", {"type": "Precompiled", "precompiled_charsmap": "AAAA"}, ("tokenizer.damaged",)),
        (
            "normalizer",
            {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": "b"},
            ("tokenizer.damaged",),
        ),
        ("pre_tokenizer", {"type": "FixedLength", "length": 0}, ("tokenizer.damaged",)),
        ("model", WORDS_WITHOUT_UNKNOWN, ("tokenizer.damaged", "WordPiece error: Missing")),
        ("dropout", 0.5, ("tokenizer.damaged",)),
        ("ids", [3] * 1000, ("tokenizer.damaged",)),
        # Of one character, 2^40.
        (
            "normalizer",
            {"type": "Sequence", "normalizers": [DOUBLE] * 40},
            ("tokenizer.damaged",),
        ),
        ("decoder", {"type": "Sequence", "decoders": [DOUBLE] * 40}, ("tokenizer.damaged",)),
        ("normalizer", {"type": "Prepend", "prepend": "a" * 20_000}, ("tokenizer.damaged",)),
        (
            "normalizer",
            {"type": "Sequence", "normalizers": [{"type": "Lowercase"}] * 2000},
            ("tokenizer.damaged", "2,000"),
        ),
        (
            "normalizer",
            {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(LONG_MAP).decode()},
            ("tokenizer.damaged",),
        ),
    ],
)
def test_a_hostile_tokenizer_json_is_one_sentence(tmp_path, capfd, part, value, says):
    """What the library panics at, which is no Exception, ids by chance, and more tokens around a text than there is room for."""
    encoders.modernbert(tmp_path / "it")
    document = json.loads((tmp_path / "it" / "tokenizer.json").read_text())
    changed = {"dropout": document["model"], "ids": document["post_processor"]["special_tokens"]["[CLS]"]}.get(
        part, document
    )
    changed[part] = value
    (tmp_path / "it" / "tokenizer.json").write_text(json.dumps(document))
    with raises(TokenizerError, *says):
        loading.load(str(tmp_path / "it")).encode_block(["a" * 5000 + "!"])
    assert "panicked" not in capfd.readouterr().err


def test_stderr_is_where_it_was_when_threads_load_tokenizers(tmp_path):
    encoders.modernbert(tmp_path / "it")
    content = (tmp_path / "it" / "tokenizer.json").read_bytes()
    stderr_status = os.fstat(2)
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: encoder_tokenizer.read_fast(content, name="it"), range(32)))
    assert os.path.samestat(stderr_status, os.fstat(2))


def test_an_encoder_without_vocabulary_is_one_sentence(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "electra"}))
    with raises(TokenizerError, "tokenizer.missing-file", str(tmp_path)):
        loading.load(str(tmp_path))


def test_a_debertas_pieces_have_the_ids_of_sentencepiece(tmp_path):
    import sentencepiece

    folder = encoders.deberta(tmp_path / "deberta")
    ours, theirs = loading.load(str(folder)), sentencepiece.SentencePieceProcessor(model_file=str(folder / "spm.model"))
    texts = [*TEXTS, "  it 's\u00a0a  movie\t. ", "ﬁlm ① 中文"]
    plain = [text for text in texts if "[" not in text and "<" not in text]
    assert [ids.tolist() for ids in ours.encode_all(plain)] == [theirs.encode(text) for text in plain]
    assert ours.frame == ((1,), (2,), (2,))
    assert (ours.pad_id, ours.eos_id, ours.unk_id, ours.size) == (0, 2, 3, theirs.get_piece_size() + 1)
    assert ours.piece(ours.size - 1) == "[MASK]"
    (text_ids,) = ours.encode_all(["[SEP]"])
    assert 2 not in text_ids


@pytest.mark.parametrize("kind", ["bert", "roberta", "modernbert"])
def test_an_input_is_read_without_special_tokens_and_with_contractions_in_one_word(kind, tmp_path):
    words = loading.load(str(getattr(encoders, kind)(tmp_path / kind)))
    text = "the leads don't keep it 's charming"
    first, second = words.encode_all([text, "a movie"])
    ids = ragged.framed(ragged.of([first, second]), np.array([0, 2]), words.frame).ids.tolist()
    decoded_input = decode_input([*ids, words.pad_id, words.pad_id], tokenizer=words, keep_newlines=False)
    start, _, end = decoded_input.partition(words.decode(list(words.frame.between)))
    assert start.strip() == ("the leads don't keep it's charming" if kind == "bert" else text)
    assert end.strip() == "a movie"
