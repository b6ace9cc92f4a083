"""Encode and decode text for models with only an encoder (BERT, RoBERTa, ...) by their `tokenizer.json`.

The file is read, or built from the model's vocabulary files.
"""

import base64
import contextlib
import functools
import hashlib
import itertools
import json
import os
import re
import string
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from t5prep.errors import TokenizerError
from t5prep.io.model_files import ModelFiles
from t5prep.json_values import MALFORMED_ERRORS
from t5prep.tokens import model_proto, ragged, special_tokens, words
from t5prep.tokens.ragged import Frame, Ragged
from t5prep.tokens.special_tokens import BERT_SPECIAL, MASKS, PADS, ROBERTA_SPECIAL, UNKNOWNS, added, unigram_pieces
from t5prep.tokens.tokenizer import Tokenizer
from t5prep.tokens.tokenizer_document import AddedToken, Document, Model, SmallFile, Step, TemplatePart, TemplateToken

if TYPE_CHECKING:
    from tokenizers import Tokenizer as FastTokenizer

Sequences = Literal["normalizers", "pretokenizers", "processors", "decoders"]  # the entries that hold lists of steps
Cutting = Callable[[pa.LargeStringArray, words.Encode], Ragged]  # a function of `words` that encodes word by word
MAX_SPECIAL_TOKENS = 8  # the maximum number of special tokens around texts


class MissingSpecialToken(Exception):  # noqa: N818 - its message is the middle of a TokenizerError's sentence
    """An error whose message is the middle of a sentence: the special token that a valid `tokenizer.json` lacks."""


class Described(NamedTuple):
    """The special tokens of a tokenizer: those around texts, single ids, and the text of each, by id."""

    frame: Frame
    pad_id: int
    unk_id: int
    special: dict[int, str]


class Template(NamedTuple):
    """The special tokens that a `tokenizer.json` puts around one text, and around and between two."""

    single: Frame
    pair: Frame

    @property
    def frame(self) -> Frame:
        """Return the special tokens around texts: those of a pair, unless a single text has different ones around it."""
        ends = self.single.first, self.single.last
        return self.pair if ends in (((), ()), (self.pair.first, self.pair.last)) else self.single

    @property
    def missing(self) -> str:
        """Return "pair" if only single texts have special tokens around them, "single" if only pairs have; else ""."""
        if (self.single.first, self.single.last) == (self.pair.first, self.pair.last):
            return ""
        return "pair" if any(self.single) else "single"


def described(document: Document) -> Described:
    """Return the special tokens of an encoder's `tokenizer.json`. Raises MissingSpecialToken, or other errors if it is damaged."""
    frame = frame_of(document, ends=False)
    if frame is None:
        raise MissingSpecialToken("no token that stands before a text")
    special = controls(document)
    ids = {text: id for id, text in special.items()}
    pads, unknowns = ([ids[text] for text in texts if text in ids] for texts in (PADS, UNKNOWNS))
    if document["model"].get("type") == "BPE" and not document["model"].get("unk_token"):
        unknowns = unknowns or pads  # byte-level BPE has a piece for each byte, so nothing is unknown
    if not pads or not unknowns:
        raise MissingSpecialToken(f"no {' or '.join(UNKNOWNS if pads else PADS)}")
    return Described(frame, pads[0], unknowns[0], special)


def frame_of(document: Document, *, ends: bool = True) -> Frame | None:
    """Return the special tokens around texts; None if there is none before a text, as in T5's tokenizers.

    ends: return None also if there is none after a text, as in Gemma's and Llama's tokenizers.
    """
    frame = template_of(document).frame
    return frame if frame.first and (frame.last or (frame.between and not ends)) else None


def template_of(document: Document) -> Template:
    """Return the special tokens that a `tokenizer.json` puts around a single text and around a pair; they may be empty."""
    for step in steps(document.get("post_processor"), "processors"):
        kind = step.get("type")
        if kind in ("BertProcessing", "RobertaProcessing"):
            (_, first), (_, last) = step["cls"], step["sep"]
            between = (last,) * (1 if kind == "BertProcessing" else 2)
            return Template(Frame((first,), (), (last,)), Frame((first,), between, (last,)))
        if kind == "TemplateProcessing":
            (prefix, suffix), pair = (
                _groups(parts, step["special_tokens"]) for parts in (step["single"], step["pair"])
            )
            return Template(Frame(prefix, (), suffix), Frame(*pair))
    return Template(Frame((), (), ()), Frame((), (), ()))


def _groups(parts: Iterable[TemplatePart], tokens: Mapping[str, TemplateToken]) -> list[tuple[int, ...]]:
    """Return the ids of a template's special tokens: before the first text, after it, and after the second text."""
    groups: list[tuple[int, ...]] = [()]
    for part in parts:
        if "Sequence" in part:
            groups.append(())
        else:
            groups[-1] += tuple(tokens[part["SpecialToken"]["id"]]["ids"])
    return groups


def controls(document: Document) -> dict[int, str]:
    """Return the special tokens of a `tokenizer.json`, which no text may become: id → text.

    These are the added tokens that are marked special, without those that a user added (`users`).
    """
    mine = {int(token["id"]) for token in users(document)}
    return {
        int(token["id"]): str(token["content"])
        for token in document["added_tokens"]
        if int(token["id"]) not in mine and token["special"]
    }


def users(document: Document) -> list[AddedToken]:
    """Return the tokens that a user added, which are found wherever a text contains them."""
    template = template_of(document)
    frame_ids = [id for frame in template for group in frame for id in group]
    return special_tokens.added_by_users(document, frame_ids=frame_ids)


def steps(section: Step | None, key: Sequences) -> list[Step]:
    """Return the steps of a section of a `tokenizer.json`: a sequence's, from its list `key`, a single step, or none."""
    if not section:
        return []
    return [step for part in section[key] for step in steps(part, key)] if section["type"] == "Sequence" else [section]


# The following functions build a `tokenizer.json`.

SPACE = "▁"
SPACES: Step = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always", "split": True}


def template(first: Mapping[str, int], last: Mapping[str, int]) -> Step:
    """Return the post-processor that puts the tokens `first` before the first text, and `last` after each text.

    first, last: text of a special token → its id.
    """
    prefix, suffix = (
        [TemplatePart(SpecialToken={"id": text, "type_id": 0}) for text in texts] for texts in (first, last)
    )
    sequence_a, sequence_b = (TemplatePart(Sequence={"id": name, "type_id": 0}) for name in "AB")
    return {
        "type": "TemplateProcessing",
        "single": [*prefix, sequence_a, *suffix],
        "pair": [*prefix, sequence_a, *suffix, sequence_b, *suffix],
        "special_tokens": {text: {"id": text, "ids": [id], "tokens": [text]} for text, id in {**first, **last}.items()},
    }


def normalizer(model: bytes) -> Step:
    """Return the normalizer of a SentencePiece model: its character map, and a single space for a run of spaces."""
    charsmap = base64.b64encode(model_proto.charsmap(model)).decode()
    mapped: list[Step] = [{"type": "Precompiled", "precompiled_charsmap": charsmap}] if charsmap else []
    strip: Step = {"type": "Strip", "strip_left": True, "strip_right": True}
    squeeze: Step = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
    return {"type": "Sequence", "normalizers": [*mapped, strip, squeeze]}


def lowercase(config: SmallFile, *, default: bool) -> list[Step]:
    """Return the normalizer for `do_lower_case` in a tokenizer_config.json, in a list, which is empty if it is off."""
    return [{"type": "Lowercase"}] if config.get("do_lower_case", default) else []


def punctuation(config: SmallFile) -> list[Step]:
    """Return the pre-tokenizer for a DeBERTa's `split_by_punct`, in a list, which is empty if it is off."""
    return [{"type": "Punctuation", "behavior": "Isolated"}] if config.get("split_by_punct", False) else []


def word_pieces(vocabulary: Sequence[str], config: SmallFile) -> bytes:
    """Return the `tokenizer.json` for a BERT's `vocab.txt`. vocabulary: its lines.

    config: the tokenizer_config.json, with `do_lower_case`, `strip_accents` and `tokenize_chinese_chars`; missing entries have
    BertTokenizer's defaults. Raises KeyError if the vocabulary lacks a special token.
    """
    ids = {piece: id for id, piece in enumerate(vocabulary)}
    normalized: Step = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": config.get("tokenize_chinese_chars", True),
        "strip_accents": config.get("strip_accents"),
        "lowercase": config.get("do_lower_case", True),
    }
    model: Model = {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": ids,
    }
    ends: Step = {"type": "BertProcessing", "sep": ("[SEP]", ids["[SEP]"]), "cls": ("[CLS]", ids["[CLS]"])}
    return _dumped(
        model,
        special={text: ids[text] for text in BERT_SPECIAL},
        normalizer=normalized,
        pre_tokenizer={"type": "BertPreTokenizer"},
        post_processor=ends,
        decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
    )


def byte_pairs(ids: Mapping[str, int], merges: Sequence[str], config: SmallFile) -> bytes:
    """Return the `tokenizer.json` for a RoBERTa's `vocab.json` and `merges.txt`. ids: the vocabulary; merges: the lines.

    config: the tokenizer_config.json, with `add_prefix_space`. Raises KeyError if the vocabulary lacks a special token.
    """
    byte_level: Step = {
        "type": "ByteLevel",
        "add_prefix_space": config.get("add_prefix_space", False),
        "trim_offsets": True,
        "use_regex": True,
    }
    rules = [line.split(" ") for line in merges if line and not line.startswith("#version")]
    model: Model = {"type": "BPE", "dropout": None, "unk_token": None, "vocab": dict(ids), "merges": rules}
    ends: Step = {"type": "RobertaProcessing", "sep": ("</s>", ids["</s>"]), "cls": ("<s>", ids["<s>"])}
    return _dumped(
        {**model, "continuing_subword_prefix": "", "end_of_word_suffix": "", "fuse_unk": False},
        special={text: ids[text] for text in ROBERTA_SPECIAL},
        normalizer=None,
        pre_tokenizer=byte_level,
        post_processor={**ends, "trim_offsets": True, "add_prefix_space": byte_level["add_prefix_space"]},
        decoder=byte_level,
    )


def sentence_pieces(content: bytes, config: SmallFile) -> bytes:
    """Return the `tokenizer.json` for a DeBERTa-v3's SentencePiece model, which has all special tokens except [MASK].

    content: the model's file. config: the tokenizer_config.json, with `do_lower_case` and `split_by_punct`. As in transformers 4,
    texts are lowercased and stripped before characters are mapped. Raises KeyError if the model lacks a special token, and
    ValueError if it is no SentencePiece model.
    """
    import sentencepiece

    try:
        model = sentencepiece.SentencePieceProcessor(model_proto=content)
    except RuntimeError as error:
        raise ValueError(error) from error
    pieces = [(model.id_to_piece(id), model.get_score(id)) for id in range(model.get_piece_size())]
    ids = {str(piece): id for id, (piece, _) in enumerate(pieces)}
    normalizers, borders = normalizer(content), punctuation(config)
    in_order = sorted(normalizers["normalizers"], key=lambda step: step["type"] != "Strip")
    if "[MASK]" not in ids:
        ids["[MASK]"] = len(pieces)
        pieces.append(("[MASK]", 0.0))
    return _dumped(
        {"type": "Unigram", "unk_id": ids["[UNK]"], "vocab": pieces, "byte_fallback": False},
        special={text: ids[text] for text in BERT_SPECIAL},
        normalizer={**normalizers, "normalizers": [*lowercase(config, default=False), *in_order]},
        pre_tokenizer={"type": "Sequence", "pretokenizers": [*borders, SPACES]} if borders else SPACES,
        post_processor=template({"[CLS]": ids["[CLS]"]}, {"[SEP]": ids["[SEP]"]}),
        decoder=SPACES,
    )


def _dumped(model: Model, *, special: Mapping[str, int], **steps: Step | None) -> bytes:
    """Return a tokenizer.json with these parts. The same vocabulary gives the same bytes."""
    in_order = sorted(special.items(), key=lambda item: item[1])
    tokens = [{**added(id, text), "lstrip": text == "<mask>"} for text, id in in_order]
    document = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens, **steps, "model": model}
    return json.dumps(document, ensure_ascii=False).encode()


MODEL_TYPES = (
    *("bert", "distilbert", "roberta", "xlm-roberta", "camembert", "albert", "electra"),
    *("modernbert", "deberta-v2", "eurobert"),
)
# Classes of transformers that read any tokenizer.json, so they do not reveal the kind of model.
NO_KINDS = ("pretrainedtokenizerfast", "tokenizersbackend")
JSON, WORDS, PAIRS, MERGES = "tokenizer.json", "vocab.txt", "vocab.json", "merges.txt"
PIECES = "spm.model"
# The files of a vocabulary, in the order of preference.
FILES = (JSON, WORDS, f"{PAIRS} with {MERGES}", PIECES)


def tokenizer_json(files: ModelFiles) -> bytes | None:
    """Return the `tokenizer.json` of an encoder, read or built; None if the files belong to another or an unknown model.

    Raises TokenizerError if an encoder has no vocabulary that can be read.
    """
    config = special_tokens.read_object(files, special_tokens.CONFIG)
    kind = str(
        special_tokens.read_object(files, "config.json").get("model_type") or config.get("tokenizer_class") or ""
    ).lower()
    kind = "" if kind in NO_KINDS else kind
    # `tokenizer_class` may also name the kind, as in "BertTokenizerFast" and "XLMRobertaTokenizer".
    is_encoders = any(
        kind == model_type or kind.startswith(f"{model_type.replace('-', '')}tokenizer") for model_type in MODEL_TYPES
    )
    has_sentencepiece = any(name.endswith(".model") for name in files.names)
    if not is_encoders and (kind or has_sentencepiece):
        return None
    try:
        if JSON in files.names:
            content = files.read(JSON)
            document = json.loads(content)
            return with_added(content, document, files)[0] if is_encoders or frame_of(document) else None
        if WORDS in files.names:
            # `splitlines` would cut pieces such as U+2028.
            lines = files.read(WORDS).decode().removesuffix("\n").split("\n")
            return _complete(word_pieces([line.removesuffix("\r") for line in lines], config), files)
        if {PAIRS, MERGES} <= files.names:
            return of_pairs(files, config)
        if PIECES in files.names and is_encoders:
            return _complete(sentence_pieces(files.read(PIECES), config), files)
    except MALFORMED_ERRORS as error:
        raise TokenizerError(
            f"The vocabulary of {files.name} cannot be read ({error!r:.80}). Fetch the files again.",
            code="tokenizer.damaged",
        ) from error
    if is_encoders:
        command = f" Create tokenizer.json: {special_tokens.save_command(files.name)}" if has_sentencepiece else ""
        raise TokenizerError(
            f"{files.name} contains no tokenizer. Add one of these files: {', '.join(FILES)}.{command}",
            code="tokenizer.missing-file",
        )
    return None


def of_pairs(files: ModelFiles, config: SmallFile) -> bytes:
    """Return the `tokenizer.json` for a `vocab.json` and a `merges.txt`, with the tokens that small files add.

    Raises ValueError, TypeError, KeyError or AttributeError for damaged files.
    """
    merges = files.read(MERGES).decode().split("\n")
    return _complete(byte_pairs(json.loads(files.read(PAIRS)), merges, config), files)


def _complete(content: bytes, files: ModelFiles) -> bytes:
    return with_added(content, json.loads(content), files)[0]


def with_added(content: bytes, document: Document, files: ModelFiles) -> tuple[bytes, Document]:
    """Return a `tokenizer.json`, as bytes and parsed, with the tokens that the small files beside it add.

    content, document: the file, as bytes and parsed. Raises TokenizerError if the files contradict each other.
    """
    merged = special_tokens.merge_added(document, special_tokens.in_small_files(files), name=files.name)
    is_unchanged = merged["added_tokens"] == sorted(document["added_tokens"], key=lambda token: int(token["id"]))
    return (content, document) if is_unchanged else (json.dumps(merged, ensure_ascii=False).encode(), merged)


# The following functions and classes encode and decode text by a `tokenizer.json`.
#
# The `tokenizers` library does the work, as in `transformers`, once for each distinct word of a block. One thing differs: text
# that spells a special token, such as `[SEP]`, is plain text here.


def cutting(document: Document) -> Cutting | None:
    """Return the function that encodes texts word by word; None if a piece may extend over two words."""
    if users(document):
        return None  # a user's token may contain spaces
    normalizer, splitter = document.get("normalizer") or {}, document.get("pre_tokenizer") or {}
    steps = [normalizer.get("type"), splitter.get("type"), document["model"].get("type")]
    if steps == ["BertNormalizer", "BertPreTokenizer", "WordPiece"]:
        return words.at_spaces
    if steps == [None, "ByteLevel", "BPE"] and splitter.get("use_regex", True):
        return functools.partial(words.before_spaces, irregular=words.IRREGULAR_SPACE)
    return None


def without_controls(document: Document, controls: Mapping[int, str]) -> Document:
    """Return a `tokenizer.json`, changed so that no text becomes a token in `controls`, while users' tokens are found.

    controls: id → text of the special tokens. With `encode_special_tokens`, the library does not find tokens marked special in a
    text, and finds all others. But a Unigram model would still take `</s>` in a text for its piece `</s>`. Here such pieces are
    renamed to contain a space. Spaces of a text are replaced before the model sees it, so it never finds these pieces.
    """
    tokens: list[AddedToken] = [
        {**token, "special": int(token["id"]) in controls} for token in document["added_tokens"]
    ]
    # t5prep itself puts the special tokens around texts, so the post-processor is removed.
    new_document: Document = {
        **document,
        "added_tokens": tokens,
        "post_processor": None,
    }
    if document["model"].get("type") == "Unigram":
        renamed = {text: f" {text}" for text in controls.values()}
        vocabulary = [(renamed.get(text, text), score) for text, score in unigram_pieces(document["model"])]
        new_document["model"] = {**document["model"], "vocab": vocabulary}
        for token in tokens:
            token["content"] = renamed.get(token["content"], token["content"])
    return new_document


@contextlib.contextmanager
def failures(name: str) -> Iterator[None]:
    """Turn an error of the `tokenizers` library in this block into a TokenizerError that names the tokenizer `name`.

    The library is written in Rust. It raises plain exceptions, and for a panic a BaseException that is no Exception.
    """
    try:
        yield
    except BaseException as error:
        if type(error) not in (Exception, ValueError) and type(error).__name__ != "PanicException":
            raise
        message = str(error).partition("\n")[0][:160]
        raise TokenizerError(
            f"The tokenizers library failed on {name} ({message}). Fetch the tokenizer again.", code="tokenizer.damaged"
        ) from error


_ONE_AT_A_TIME = threading.Lock()  # all threads share stderr, which `read_fast` replaces
# Texts at which damaged tables of characters, lengths of 0 and endless patterns panic: runs of each printable character.
_PROBE = [*(f"{character * 64}!" for character in string.printable), "naïve 中文 🙂 \ue000"]


# Limits for a stranger's file: the factor by which steps may lengthen a text, and the number of steps.
MOST_GROWTH, MOST_STEPS = 10_000, 1000


def check_growth(document: Document) -> None:
    """Raise ValueError if the steps of a `tokenizer.json` could lengthen a short text until it fills the memory."""
    parts = {
        "normalizer": steps(document.get("normalizer"), "normalizers"),
        "decoder": steps(document.get("decoder"), "decoders"),
    }
    for part, sequence in parts.items():
        growth = 1
        for step in sequence[:MOST_STEPS]:
            growth *= max(1, len(str(step.get("content") or "").encode(errors="replace")))
            growth += len(str(step.get("prepend") or ""))
            model_proto.check_charsmap(base64.b64decode(step.get("precompiled_charsmap") or ""))
            if growth > MOST_GROWTH:
                raise ValueError(f"its {part} makes texts more than {MOST_GROWTH:,} times as long")
        if len(sequence) > MOST_STEPS:
            raise ValueError(f"its {part} has {len(sequence):,} steps")


def read_fast(file: bytes | Document, *, name: str) -> "FastTokenizer":
    """Return the library's tokenizer for a `tokenizer.json`, after trying it on texts. Raises TokenizerError if it is damaged.

    file: the file's bytes, or its content if it was built here. name: the tokenizer's name in errors.

    A panic of the library prints a page to the file descriptor of stderr. The page is suppressed here, together with anything that
    other threads print meanwhile. A panic at a rare text, later during encoding, does show its page, because suppressing
    stderr then could hide messages about a stopped run.
    """
    from tokenizers import Tokenizer as FastTokenizer

    try:
        check_growth(json.loads(file) if isinstance(file, bytes) else file)
    except MALFORMED_ERRORS as error:
        raise TokenizerError(
            f"The tokenizer {name} cannot be used ({error!s:.160}). Fetch it again.", code="tokenizer.damaged"
        ) from error
    content = file if isinstance(file, bytes) else json.dumps(file).encode()
    with _ONE_AT_A_TIME, contextlib.ExitStack() as cleanup:
        with contextlib.suppress(OSError):  # stderr may be closed
            stderr_copy = os.dup(2)
            cleanup.callback(os.close, stderr_copy)
            cleanup.callback(os.dup2, stderr_copy, 2)
            with open(os.devnull, "wb") as nothing:
                os.dup2(nothing.fileno(), 2)
        with failures(name):
            fast = FastTokenizer.from_buffer(content)
            with contextlib.suppress(Exception):  # an error is no damage: a character may be missing in the vocabulary
                fast.encode_batch_fast(_PROBE, add_special_tokens=False)
            return fast


# The apostrophe in "don ' t" and "we ' re", with the spaces that WordPiece leaves around it.
_CONTRACTION = re.compile(r"(?<=\w) ' (?=(?:d|ll|m|re|s|t|ve)\b)")

# The library must not start threads, because there is already a worker process for each core.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


class EncoderTokenizer(Tokenizer):
    """Encode text to ids and decode ids, with a `tokenizer.json`.

    `model` is the file's content. `eos_id` is the id of the token after a text (`[SEP]`, `</s>`), or between two texts if there is
    none at the end. Raises TokenizerError if the content is damaged.
    """

    file_name = "tokenizer.json"
    is_encoders = True
    is_bytes = False
    slow = ""
    sentinels = 0
    _kind = "an encoder"
    _advice = "Use the tokenizer of a BERT, a RoBERTa or a similar model."

    def __init__(self, model: bytes, *, name: str) -> None:
        try:
            self.model, document = model, json.loads(model)
            description, self._encode_by_words = self._describe(document), self._cuts(document)
            if document["model"].get("dropout"):
                raise ValueError("its dropout gives a text other ids each time")
            if sum(map(len, description.frame)) > MAX_SPECIAL_TOKENS:
                raise ValueError(f"it puts {sum(map(len, description.frame)):,} tokens around a text")
            self.template_without = template_of(document).missing
            self._is_word_pieces = document["model"].get("type") == "WordPiece"
            self._fast = read_fast(without_controls(document, description.special), name=name)
        except TokenizerError:
            raise
        except MissingSpecialToken as error:
            raise TokenizerError(
                f"{name} has {error}, so {self._kind} cannot use it. {self._advice}", code="tokenizer.missing-token"
            ) from None
        except Exception as error:  # of many kinds, by what is damaged
            raise TokenizerError(
                f"{name} is not a tokenizer for {self._kind} ({str(error).splitlines()[0][:80]}). Fetch the "
                "tokenizer again.",
                code="tokenizer.damaged",
            ) from error
        self._fast.no_padding()
        self._fast.no_truncation()
        self._fast.encode_special_tokens = True
        self.name = name
        self.sha256 = hashlib.sha256(model).hexdigest()
        self.frame = description.frame
        self.pad_id, self.unk_id, self.eos_id = (
            description.pad_id,
            description.unk_id,
            (self.frame.last or self.frame.between)[-1],
        )
        self.frame_of_targets = Frame((), (), (self.eos_id,))
        self.vocab_size = self.size = self.padded_size = self._fast.get_vocab_size()
        self._special = {id: text.removeprefix("▁") for id, text in description.special.items()}
        # The id of the token that replaces a hidden token; None if the vocabulary has no such token.
        self.mask_id = next((id for id, text in description.special.items() if text in MASKS), None)

    def _describe(self, document: Document) -> Described:
        return described(document)

    def _cuts(self, document: Document) -> Cutting | None:
        return cutting(document)

    def sentinel(self, number: int) -> int:
        """Return -1, which is no id, because an encoder's vocabulary has no sentinels."""
        return -1

    def encode_block(self, texts: list[str] | pa.LargeStringArray) -> Ragged:
        """Return the ids of many texts as a Ragged, without special tokens. No text may be null.

        If the model allows it, each distinct word is encoded once.
        """
        if self._encode_by_words and isinstance(texts, pa.LargeStringArray):
            return self._encode_by_words(texts, self._encode_whole)
        return self._encode_whole(texts if isinstance(texts, list) else texts.to_pylist())

    def _encode_whole(self, texts: list[str]) -> Ragged:
        """Return the ids of many texts, each encoded as a whole by the `tokenizers` library."""
        with failures(self.name):
            encoded = [encoding.ids for encoding in self._fast.encode_batch_fast(texts, add_special_tokens=False)]
        starts = ragged.begins([len(ids) for ids in encoded])
        return Ragged(np.fromiter(itertools.chain.from_iterable(encoded), np.int32, int(starts[-1])), starts)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`, with the texts of special tokens, but without padding."""
        out: list[str] = []
        for special, group in itertools.groupby(ids, key=self.special):
            plain = list(group)
            if special is None:
                with failures(self.name):
                    out.append(self._fast.decode(plain))
            elif plain[0] != self.pad_id:
                out += [special] * len(plain)
        return " ".join(out)

    def to_read(self, text: str) -> str:
        """Return a decoded text without spaces around the apostrophes of contractions, which WordPiece inserts."""
        return _CONTRACTION.sub("'", text) if self._is_word_pieces else text

    def special(self, token: int) -> str | None:
        """Return the text of a special token; None for a piece of text."""
        return self._special.get(token) or (None if 0 <= token < self.size else f"<unused_{token}>")

    def piece(self, token: int) -> str:
        """Return the text of a token in the vocabulary: `##ing`, `Ġthe`, `[SEP]`."""
        return self.special(token) or str(self._fast.id_to_token(token))
