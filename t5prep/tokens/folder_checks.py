"""Refuse tokenizer folders for which transformers gives different ids, depending on its version or on the file that it reads."""

import base64
import json

import numpy as np

from t5prep.errors import TokenizerError
from t5prep.io.model_files import ModelFiles
from t5prep.json_values import MALFORMED_ERRORS
from t5prep.tokens import class_steps, encoder_tokenizer, model_proto, sentencepiece_json, special_tokens
from t5prep.tokens.encoder_tokenizer import JSON
from t5prep.tokens.special_tokens import CONFIG, SENTINEL
from t5prep.tokens.tokenizer import SENTINELS, Tokenizer
from t5prep.tokens.tokenizer_document import Document, SmallFile

# Classes for which transformers 5 keeps the vocabulary of a tokenizer.json and replaces all steps; names without "Fast".
BERT_CLASSES = ("berttokenizer", "distilberttokenizer", "electratokenizer")
ROBERTA_CLASSES = ("robertatokenizer",)
LLAMA_CLASSES = ("llamatokenizer",)
# Type of a model → the class that transformers takes if the files name none. For types in _ANY_CLASS transformers 5 uses no class.
_CLASSES_OF_MODELS = {
    **{kind: f"{kind}tokenizer" for kind in ("bert", "distilbert", "electra", "roberta", "t5", "albert", "camembert")},
    **{"mt5": "t5tokenizer", "xlm-roberta": "xlmrobertatokenizer", "deberta-v2": "debertav2tokenizer"},
}
_ANY_CLASS = ("umt5", "modernbert")
_BERT_STEPS = (["BertNormalizer"], ["BertPreTokenizer"])
# Options of BertTokenizer: the name in tokenizer_config.json, the name in a BertNormalizer, and the default.
_BERT_OPTIONS = (
    ("do_lower_case", "lowercase", True),
    ("strip_accents", "strip_accents", None),
    ("tokenize_chinese_chars", "handle_chinese_chars", True),
)
# The tolerance for comparing scores of which one was written with fewer digits.
_SCORE_TOLERANCE = 1e-4


def parse(content: bytes, *, name: str) -> Document:
    """Return the content of a `tokenizer.json`. Raises TokenizerError if it is damaged."""
    try:
        document: Document = json.loads(content)
        vocabulary = special_tokens.vocabulary(document)
        document["added_tokens"] = list(document.get("added_tokens") or [])
        if not vocabulary or not all({"id", "content"} <= token.keys() for token in document["added_tokens"]):
            raise ValueError("it has no vocabulary")
        if document["model"].get("type", "Unigram") == "Unigram":
            special_tokens.unigram_pieces(document["model"])
        return document
    except MALFORMED_ERRORS as error:
        raise TokenizerError(
            f"{name}: tokenizer.json is damaged ({type(error).__name__}). Fetch it again.", code="tokenizer.damaged"
        ) from error


def class_of(files: ModelFiles) -> str:
    """Return the tokenizer class that transformers uses for a folder, in lower case and without "Fast"; "" if unknown."""
    kind = str(special_tokens.read_object(files, "config.json").get("model_type") or "")
    if kind in _ANY_CLASS and JSON in files.names:
        return ""
    for file in (CONFIG, "config.json"):
        if class_name := special_tokens.read_object(files, file).get("tokenizer_class"):
            return str(class_name).lower().removesuffix("fast")
    return _CLASSES_OF_MODELS.get(kind, "")


def check_class(files: ModelFiles) -> None:
    """Raise TokenizerError if the folder's class treats spaces differently from its SentencePiece model."""
    config, class_name = special_tokens.read_object(files, CONFIG), class_of(files)
    if JSON not in files.names and class_name in LLAMA_CLASSES:
        raise TokenizerError(
            f"{files.name} has no tokenizer.json. For the class {config['tokenizer_class']}, transformers "
            "encodes leading spaces differently from the SentencePiece model. Create tokenizer.json: "
            f"{special_tokens.save_command(files.name)}",
            code="tokenizer.missing-json",
        )
    option = config.get("add_prefix_space", True)
    # null means the setting of tokenizer.json; without that file it means false.
    if class_name == "t5tokenizer" and (option is False or (option is None and JSON not in files.names)):
        raise TokenizerError(
            f'{files.name} has "add_prefix_space": {json.dumps(option)} in {CONFIG}. transformers 4 then '
            "puts no space before a text, but transformers 5 and the SentencePiece model do. Remove this "
            "entry.",
            code="tokenizer.ambiguous-prefix-space",
        )


def sentinels_of(files: ModelFiles, tokenizer: Tokenizer) -> int | None:
    """Return the number of sentinels that the small files add to a SentencePiece model; None for none, or the usual 100.

    Raises TokenizerError if the files contradict each other or the model.
    """
    if tokenizer.is_bytes:
        return None
    config = special_tokens.read_object(files, CONFIG)
    listed = {text for text in special_tokens.special_texts(files) if SENTINEL.fullmatch(text)}
    by_id = {
        str(token["content"]): int(token["id"])
        for token in special_tokens.in_small_files(files)
        if SENTINEL.fullmatch(str(token["content"]))
    }
    stated = config.get("extra_ids")
    count = len(by_id) or len(listed) or (stated if isinstance(stated, int) else 0)
    if not count:
        return None
    if isinstance(stated, int) and stated not in (0, count):
        raise TokenizerError(
            f"{files.name}: {CONFIG} declares {stated:,} extra_ids, but {count:,} tokens <extra_id_…> are "
            "listed. Make the two numbers equal, as transformers requires.",
            code="tokenizer.config-conflict",
        )
    if tokenizer.sentinels == count:
        first = tokenizer.sentinel(0)
    elif tokenizer.size > tokenizer.vocab_size:
        first = tokenizer.vocab_size + count - 1
    else:
        raise TokenizerError(
            f"{files.name}: the SentencePiece model already has {tokenizer.sentinels:,} sentinels, but "
            f'{CONFIG} adds {count:,}. In this file, set "extra_ids": 0 and remove all <extra_id_…> '
            "tokens.",
            code="tokenizer.duplicate-sentinels",
        )
    for text, id in by_id.items():
        number = int(SENTINEL.fullmatch(text)[1])  # type: ignore[index]
        if id != first - number:
            raise TokenizerError(
                f"{files.name}: {text} has the id {id:,} instead of {first - number:,}, because T5 numbers "
                "sentinels from the last id down. Save the tokenizer again with the library that created it.",
                code="tokenizer.inconsistent-ids",
            )
    return count if count != SENTINELS else None


def check_same(tokenizer: Tokenizer, document: Document, *, file: str) -> None:
    """Raise TokenizerError if a SentencePiece model, `file`, and the `tokenizer.json` beside it give different ids."""
    if difference := _difference(tokenizer, document):
        raise TokenizerError(
            f"{tokenizer.name}: {file} and tokenizer.json produce different ids ({difference}). Remove "
            "the file that the model was not trained with.",
            code="tokenizer.file-conflict",
        )


def _difference(tokenizer: Tokenizer, document: Document) -> str:
    """Return the first difference between a `tokenizer.json` and a SentencePiece model; "" if there is none."""
    processor, size = tokenizer.processor, tokenizer.processor.get_piece_size()
    ids = [*range(size)]
    ours = processor.id_to_piece(ids)
    vocabulary = special_tokens.vocabulary(document)
    by_id = {id: text for text, id in vocabulary.items()}
    by_id |= {int(token["id"]): str(token["content"]) for token in document["added_tokens"]}
    theirs = [by_id.get(id) for id in ids]
    if ours != theirs:
        id = next(id for id in ids if ours[id] != theirs[id])
        if not processor.is_control(id):  # transformers names them by tokenizer_config.json
            return f"the token {id:,} is {ours[id]!r} in the first file and {theirs[id]!r} in the second"
    if document["model"].get("type", "Unigram") != "Unigram":
        return ""
    if tokenizer.facts.model_type != model_proto.UNIGRAM:
        return "their model types differ"
    scores = np.array(processor.get_score(ids), np.float64)
    document_scores = np.array(
        [score for _, score in special_tokens.unigram_pieces(document["model"])[:size]], np.float64
    )
    plain = ~np.array(processor.is_control(ids)) & ~np.array(processor.is_unknown(ids))
    if not np.allclose(scores[plain], document_scores[plain], rtol=_SCORE_TOLERANCE, atol=_SCORE_TOLERANCE):
        return "the scores of their pieces differ"
    return _other_steps(tokenizer.facts.charsmap, document)


def _other_steps(charsmap: bytes, document: Document) -> str:
    """Return the first difference between a Unigram `tokenizer.json` and a SentencePiece model in changing or splitting texts.

    charsmap: the model's compiled character map. Return "" if there is no difference.
    """
    if reason := sentencepiece_json.unlike_steps(document):
        return f"in tokenizer.json, {reason}"
    steps = encoder_tokenizer.steps(document.get("normalizer"), "normalizers")
    maps = [base64.b64decode(step["precompiled_charsmap"] or "") for step in steps if step["type"] == "Precompiled"]
    has_rules = any(step["type"] in ("Nmt", "NFKC") for step in steps)
    if not has_rules and b"".join(maps) != charsmap:
        return "their character maps differ"
    return ""


def check_small_files(files: ModelFiles, document: Document) -> None:
    """Raise TokenizerError if the small files contradict `tokenizer.json` on splitting texts, or on tokens around them.

    transformers 4 and 5 follow one or the other, depending on the class.
    """
    config, class_name = special_tokens.read_object(files, CONFIG), class_of(files)
    _check_ends(config, document, name=files.name)
    _check_prefix_space(config, document, name=files.name, is_known=CONFIG in files.names)
    _check_bert(config, document, class_name, name=files.name)
    _check_llama(config, document, class_name, name=files.name)
    _check_added(document, name=files.name)
    _check_class_steps(config, document, class_name, name=files.name)


def _check_ends(config: SmallFile, document: Document, *, name: str) -> None:
    template = encoder_tokenizer.template_of(document)
    is_text_model = not encoder_tokenizer.frame_of(document)  # t5prep ends its texts in EOS, whatever the file says
    for option, ids in (("add_bos_token", template.single.first), ("add_eos_token", template.single.last)):
        config_value = config.get(option)
        if (
            isinstance(config_value, bool)
            and config_value != bool(ids)
            and not (is_text_model and option == "add_eos_token")
        ):
            puts = "adds a token" if ids else "adds no token"
            side = "before a text" if option == "add_bos_token" else "after a text"
            raise TokenizerError(
                f'{name}: {CONFIG} has "{option}": {json.dumps(config_value)}, but tokenizer.json {puts} '
                f"{side}. Write in both files what the model was trained with.",
                code="tokenizer.config-conflict",
            )


def _check_prefix_space(config: SmallFile, document: Document, *, name: str, is_known: bool) -> None:
    splitter = document.get("pre_tokenizer") or {}
    if splitter.get("type") != "ByteLevel" or not is_known:
        return
    stated, config_value = bool(splitter.get("add_prefix_space", True)), bool(config.get("add_prefix_space", False))
    if stated != config_value:
        raise TokenizerError(
            f'{name}: tokenizer.json has "add_prefix_space": {json.dumps(stated)}, but transformers takes '
            f"{json.dumps(config_value)} from {CONFIG}. Write the same value in both files.",
            code="tokenizer.config-conflict",
        )


def _check_bert(config: SmallFile, document: Document, class_name: str, *, name: str) -> None:
    normalizers = encoder_tokenizer.steps(document.get("normalizer"), "normalizers")
    splitters = encoder_tokenizer.steps(document.get("pre_tokenizer"), "pretokenizers")
    types = [[str(step["type"]) for step in steps] for steps in (normalizers, splitters)]
    if (class_name in ROBERTA_CLASSES and types != [[], ["ByteLevel"]]) or (
        class_name in BERT_CLASSES and types != [*_BERT_STEPS]
    ):
        extra = next(
            (kind for kind in (*types[0], *types[1]) if kind not in (*_BERT_STEPS[0], *_BERT_STEPS[1])), "none"
        )
        raise _replaced(f"splits texts by its own steps ({extra})", config, name=name)
    if class_name not in BERT_CLASSES:
        return
    for option, field, default in _BERT_OPTIONS:
        stated, config_value = normalizers[0].get(field), config.get(option, default)
        if stated != config_value:
            raise TokenizerError(
                f'{name}: tokenizer.json has "{field}": {json.dumps(stated)}, but transformers takes '
                f'"{option}": {json.dumps(config_value)} from '
                f"{CONFIG}{'' if option in config else ' (missing, so the default)'}. Write the same value in "
                "both files.",
                code="tokenizer.config-conflict",
            )


def _check_llama(config: SmallFile, document: Document, class_name: str, *, name: str) -> None:
    if class_name not in LLAMA_CLASSES:
        return
    splitter = document.get("pre_tokenizer") or {}
    schemes = ("never",) if config.get("add_prefix_space") is False else ("first", "always")
    is_known = splitter.get("type") == "Metaspace" and splitter.get("prepend_scheme") in schemes
    if document.get("normalizer") or not is_known or splitter.get("split") is not False:
        raise _replaced("writes spaces by its own steps", config, name=name)


def _check_class_steps(config: SmallFile, document: Document, class_name: str, *, name: str) -> None:
    """Raise TokenizerError if the steps of the class in transformers 5 split ordinary texts differently from the file's.

    Differences at unusual characters are accepted; `tokenizer check` reports the share of affected texts.
    """
    rebuilt_document = class_steps.rebuilt(document, config, class_name)
    if rebuilt_document is not None and not class_steps.splits_alike(document, rebuilt_document, name=name):
        raise _replaced("splits texts by its own steps", config, name=name)


def _replaced(action: str, config: SmallFile, *, name: str) -> TokenizerError:
    """Return the error for a file whose steps transformers 4 uses, and transformers 5 replaces."""
    return TokenizerError(
        f"{name}: tokenizer.json {action}, but transformers 5 uses the steps of "
        f'{config.get("tokenizer_class", "its class")}. Write "tokenizer_class": '
        f'"PreTrainedTokenizerFast" in {CONFIG}.',
        code="tokenizer.unsupported-class",
    )


def _check_added(document: Document, *, name: str) -> None:
    """Raise TokenizerError for an added token that is normalized to nothing: transformers finds it between all letters."""
    tokens = [token for token in encoder_tokenizer.users(document) if token.get("normalized")]
    if not tokens:
        return
    alone: Document = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": document.get("normalizer"),
        "model": {"type": "WordLevel", "vocab": {"<unk>": 0}, "unk_token": "<unk>"},
    }
    normalizer = encoder_tokenizer.read_fast(alone, name=name).normalizer
    with encoder_tokenizer.failures(name):
        for token in tokens:
            text = str(token["content"])
            if (
                normalizer is not None
                and (normalized_text := normalizer.normalize_str(text)) != text
                and not normalized_text.strip(" ▁")
            ):
                raise TokenizerError(
                    f"{name}: the added token {text!r} is white space after normalization, so it matches "
                    f"everywhere. Add the token without normalization: tokenizer.add_tokens(AddedToken({text!r}, "
                    "normalized=False))",
                    code="tokenizer.blank-added-token",
                )
