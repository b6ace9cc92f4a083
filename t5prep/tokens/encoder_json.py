"""Find the tokenizer of a model with only an encoder (BERT, RoBERTa): a `tokenizer.json`, read or made of its vocabulary."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from t5prep.errors import TokenizerError
from t5prep.io.model_files import ModelFiles
from t5prep.tokens.ragged import Frame

PADS, UNKNOWNS = ("[PAD]", "<pad>"), ("[UNK]", "<unk>")
BERT_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ROBERTA_SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


class Described(NamedTuple):
    """The special tokens of a tokenizer: those around texts, single ids, and how each is written, by id."""

    frame: Frame
    pad_id: int
    unk_id: int
    special: dict[int, str]


def parse(content: bytes) -> Described:
    """Return the special tokens of a `tokenizer.json`. Raises ValueError, TypeError or KeyError where it has none."""
    whole = json.loads(content)
    special = {int(one["id"]): str(one["content"]) for one in whole["added_tokens"] if one["special"]}
    ids = {text: id for id, text in special.items()}
    frame = frame_of(whole)
    if frame is None:
        raise ValueError("it puts no token before a text")
    pads, unknowns = ([ids[text] for text in texts if text in ids] for texts in (PADS, UNKNOWNS))
    if not pads or not unknowns:
        raise ValueError(f"it has none of {', '.join(UNKNOWNS if pads else PADS)}")
    return Described(frame, pads[0], unknowns[0], special)


def frame_of(whole: Mapping[str, Any]) -> Frame | None:
    """Return the special tokens around texts; None where none stands before a text, as in T5's tokenizers."""
    steps = [whole.get("post_processor") or {}]
    steps = [step for one in steps for step in (one["processors"] if one.get("type") == "Sequence" else [one])]
    for step in steps:
        kind = step.get("type")
        if kind in ("BertProcessing", "RobertaProcessing"):
            (_, first), (_, last) = step["cls"], step["sep"]
            return Frame((first,), (last,) * (1 if kind == "BertProcessing" else 2), (last,))
        if kind == "TemplateProcessing":
            first, between, last = _template(step)
            return Frame(first, between, last) if first and last else None
    return None


def _template(step: Mapping[str, Any]) -> tuple[tuple[int, ...], ...]:
    """Return the ids before, between and after the two texts of a pair."""
    groups: list[list[int]] = [[]]
    for part in step["pair"]:
        if "Sequence" in part:
            groups.append([])
        else:
            groups[-1] += step["special_tokens"][part["SpecialToken"]["id"]]["ids"]
    return tuple(map(tuple, groups))


def word_pieces(vocabulary: Sequence[str], config: Mapping[str, Any]) -> bytes:
    """Return the `tokenizer.json` of a BERT's `vocab.txt`, given by its lines.

    config: `do_lower_case`, `strip_accents` and `tokenize_chinese_chars` of its tokenizer_config.json, with
    BertTokenizer's defaults. Raises KeyError where a special token is not in the vocabulary.
    """
    ids = {piece: id for id, piece in enumerate(vocabulary)}
    normalizer = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": config.get("tokenize_chinese_chars", True),
        "strip_accents": config.get("strip_accents"),
        "lowercase": config.get("do_lower_case", True),
    }
    model = {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": ids,
    }
    around = {"type": "BertProcessing", "sep": ["[SEP]", ids["[SEP]"]], "cls": ["[CLS]", ids["[CLS]"]]}
    return _dumped(
        model,
        special={text: ids[text] for text in BERT_SPECIAL},
        normalizer=normalizer,
        pre_tokenizer={"type": "BertPreTokenizer"},
        post_processor=around,
        decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
    )


def byte_pairs(ids: Mapping[str, int], merges: Sequence[str], config: Mapping[str, Any]) -> bytes:
    """Return the `tokenizer.json` of a RoBERTa's `vocab.json` and `merges.txt`, given by its lines.

    config: `add_prefix_space` of its tokenizer_config.json. Raises KeyError where a special token is not there.
    """
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": config.get("add_prefix_space", False),
        "trim_offsets": True,
        "use_regex": True,
    }
    rules = [line.split(" ") for line in merges if line and not line.startswith("#version")]
    model = {"type": "BPE", "dropout": None, "unk_token": None, "vocab": dict(ids), "merges": rules}
    around = {"type": "RobertaProcessing", "sep": ["</s>", ids["</s>"]], "cls": ["<s>", ids["<s>"]]}
    return _dumped(
        {**model, "continuing_subword_prefix": "", "end_of_word_suffix": "", "fuse_unk": False},
        special={text: ids[text] for text in ROBERTA_SPECIAL},
        normalizer=None,
        pre_tokenizer=byte_level,
        post_processor={**around, "trim_offsets": True, "add_prefix_space": byte_level["add_prefix_space"]},
        decoder=byte_level,
    )


def _dumped(model: Mapping[str, Any], *, special: Mapping[str, int], **parts: Any) -> bytes:
    """Return a tokenizer.json, the same bytes for the same vocabulary."""
    added = [
        {
            "id": id,
            "content": text,
            "single_word": False,
            "lstrip": text == "<mask>",
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for text, id in sorted(special.items(), key=lambda item: item[1])
    ]
    whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, **parts, "model": model}
    return json.dumps(whole, ensure_ascii=False).encode()


MODEL_TYPES = ("bert", "distilbert", "roberta", "albert", "electra")
JSON, WORDS, PAIRS, MERGES = "tokenizer.json", "vocab.txt", "vocab.json", "merges.txt"
FILES = (JSON, WORDS, f"{PAIRS} with {MERGES}")


def tokenizer_json(files: ModelFiles) -> bytes | None:
    """Return an encoder's tokenizer; None where the files are of another model, or of none that is known.

    Raises TokenizerError where an encoder has no vocabulary that can be read.
    """
    config = _object(files, "tokenizer_config.json")
    kind = str(_object(files, "config.json").get("model_type") or config.get("tokenizer_class") or "").lower()
    # "XLMRobertaTokenizer" is not a name of these, and "BertTokenizerFast" is.
    is_encoders = any(kind == known or kind.startswith(f"{known}tokenizer") for known in MODEL_TYPES)
    has_sentencepiece = any(name.endswith(".model") for name in files.names)
    if not is_encoders and (kind or has_sentencepiece):
        return None
    try:
        if JSON in files.names:
            content = files.read(JSON)
            return content if is_encoders or frame_of(json.loads(content)) else None
        if WORDS in files.names:
            lines = files.read(WORDS).decode().removesuffix("\n").split("\n")  # some pieces are other line breaks
            return word_pieces([line.removesuffix("\r") for line in lines], config)
        if {PAIRS, MERGES} <= files.names:
            merges = files.read(MERGES).decode().split("\n")
            return byte_pairs(json.loads(files.read(PAIRS)), merges, config)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise TokenizerError(
            f"The vocabulary of {files.name} cannot be read ({error!r:.80}): fetch it again."
        ) from error
    if is_encoders:
        raise TokenizerError(f"{files.name} holds no tokenizer; one of {', '.join(FILES)} is looked for.")
    return None


def _object(files: ModelFiles, name: str) -> Mapping[str, Any]:
    """Return a JSON file's content; an empty dict where the file is not there, or is damaged."""
    if name not in files.names:
        return {}
    try:
        return dict(json.loads(files.read(name)))
    except (ValueError, TypeError, RecursionError):
        return {}
