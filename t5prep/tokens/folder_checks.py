"""Refuse tokenizer folders for which transformers gives different ids, depending on its version or on the file that it reads."""

import base64
import json

import numpy as np

from t5prep.errors import TokenizerError
from t5prep.io.model_files import ModelFiles
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
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError) as error:
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
            f"{files.name} has a SentencePiece model of class {config['tokenizer_class']},"
            " for which transformers writes the spaces that begin a text otherwise than the model, and has no tokenizer.json"
            f" that says how. Write one: {special_tokens.save_command(files.name)}",
            code="tokenizer.missing-json",
        )
    option = config.get("add_prefix_space", True)
    # null means the setting of tokenizer.json; without that file it means false.
    if class_name == "t5tokenizer" and (option is False or (option is None and JSON not in files.names)):
        raise TokenizerError(
            f'{files.name}: by "add_prefix_space": {json.dumps(option)} in {CONFIG} transformers 4 puts no space before a text,'
            " and transformers 5 and the SentencePiece model put one. Leave it out.",
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
            f"{files.name}: {CONFIG} has {stated:,} extra_ids, and {count:,} tokens <extra_id_…> are listed. transformers"
            " refuses it too: write the same number in both.",
            code="tokenizer.config-conflict",
        )
    if tokenizer.sentinels == count:
        first = tokenizer.sentinel(0)
    elif tokenizer.size > tokenizer.vocab_size:
        first = tokenizer.vocab_size + count - 1
    else:
        raise TokenizerError(
            f"{files.name}: its SentencePiece model has {tokenizer.sentinels:,} sentinels of its own, and {CONFIG} adds"
            f' {count:,}: write "extra_ids": 0 there, and leave <extra_id_…> out of it.',
            code="tokenizer.duplicate-sentinels",
        )
    for text, id in by_id.items():
        number = int(SENTINEL.fullmatch(text)[1])  # type: ignore[index]
        if id != first - number:
            raise TokenizerError(
                f"{files.name}: {text} is {id:,} in its small files, and T5's order, from the last id down, makes it"
                f" {first - number:,}. Save it again with the library that made it.",
                code="tokenizer.inconsistent-ids",
            )
    return count if count != SENTINELS else None


def check_same(tokenizer: Tokenizer, document: Document, *, file: str) -> None:
    """Raise TokenizerError if a SentencePiece model, `file`, and the `tokenizer.json` beside it give different ids."""
    if difference := _difference(tokenizer, document):
        raise TokenizerError(
            f"{tokenizer.name}: {file} and tokenizer.json give other ids ({difference}). Remove the one that the model was"
            " not trained with.",
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
        if not processor.is_control(id):  # the texts of control tokens come from tokenizer_config.json
            return f"the token {id:,} is {ours[id]!r} in the one and {theirs[id]!r} in the other"
    if document["model"].get("type", "Unigram") != "Unigram":
        return ""
    if tokenizer.facts.model_type != model_proto.UNIGRAM:
        return "the one is of another kind than the other"
    scores = np.array(processor.get_score(ids), np.float64)
    document_scores = np.array(
        [score for _, score in special_tokens.unigram_pieces(document["model"])[:size]], np.float64
    )
    plain = ~np.array(processor.is_control(ids)) & ~np.array(processor.is_unknown(ids))
    if not np.allclose(scores[plain], document_scores[plain], rtol=_SCORE_TOLERANCE, atol=_SCORE_TOLERANCE):
        return "their pieces have other scores"
    return _other_steps(tokenizer.facts.charsmap, document)


def _other_steps(charsmap: bytes, document: Document) -> str:
    """Return the first difference between a Unigram `tokenizer.json` and a SentencePiece model in changing or splitting texts.

    charsmap: the model's compiled character map. Return "" if there is no difference.
    """
    if reason := sentencepiece_json.unlike_steps(document):
        return f"of tokenizer.json, {reason}"
    steps = encoder_tokenizer.steps(document.get("normalizer"), "normalizers")
    maps = [base64.b64decode(step["precompiled_charsmap"] or "") for step in steps if step["type"] == "Precompiled"]
    has_rules = any(step["type"] in ("Nmt", "NFKC") for step in steps)
    if not has_rules and b"".join(maps) != charsmap:
        return "they map other characters"
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
            puts = "puts a token" if ids else "puts none"
            side = "before a text" if option == "add_bos_token" else "after a text"
            raise TokenizerError(
                f'{name}: {CONFIG} says "{option}": {json.dumps(config_value)}, and tokenizer.json {puts} {side}. Write what the'
                " model was trained with in both.",
                code="tokenizer.config-conflict",
            )


def _check_prefix_space(config: SmallFile, document: Document, *, name: str, is_known: bool) -> None:
    splitter = document.get("pre_tokenizer") or {}
    if splitter.get("type") != "ByteLevel" or not is_known:
        return
    stated, config_value = bool(splitter.get("add_prefix_space", True)), bool(config.get("add_prefix_space", False))
    if stated != config_value:
        raise TokenizerError(
            f'{name}: tokenizer.json says "add_prefix_space": {json.dumps(stated)}, and transformers takes'
            f" {json.dumps(config_value)} from {CONFIG}. Write the same in both.",
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
        raise _replaced(f"splits texts by steps ({extra})", config, name=name)
    if class_name not in BERT_CLASSES:
        return
    for option, field, default in _BERT_OPTIONS:
        stated, config_value = normalizers[0].get(field), config.get(option, default)
        if stated != config_value:
            raise TokenizerError(
                f'{name}: tokenizer.json says "{field}": {json.dumps(stated)}, and transformers takes "{option}":'
                f" {json.dumps(config_value)} from {CONFIG}{'' if option in config else ', where it is missing'}. Write the same in"
                " both.",
                code="tokenizer.config-conflict",
            )


def _check_llama(config: SmallFile, document: Document, class_name: str, *, name: str) -> None:
    if class_name not in LLAMA_CLASSES:
        return
    splitter = document.get("pre_tokenizer") or {}
    schemes = ("never",) if config.get("add_prefix_space") is False else ("first", "always")
    is_known = splitter.get("type") == "Metaspace" and splitter.get("prepend_scheme") in schemes
    if document.get("normalizer") or not is_known or splitter.get("split") is not False:
        raise _replaced("writes spaces by steps", config, name=name)


def _check_class_steps(config: SmallFile, document: Document, class_name: str, *, name: str) -> None:
    """Raise TokenizerError if the steps of the class in transformers 5 split ordinary texts differently from the file's.

    Differences at unusual characters are accepted; `tokenizer check` reports the share of affected texts.
    """
    rebuilt_document = class_steps.rebuilt(document, config, class_name)
    if rebuilt_document is not None and not class_steps.splits_alike(document, rebuilt_document, name=name):
        raise _replaced("splits texts by steps", config, name=name)


def _replaced(action: str, config: SmallFile, *, name: str) -> TokenizerError:
    """Return the error for a file whose steps transformers 4 uses, and transformers 5 replaces."""
    return TokenizerError(
        f"{name}: tokenizer.json {action} that transformers 5 replaces by those of {config.get('tokenizer_class', 'its class')}."
        f' Write "tokenizer_class": "PreTrainedTokenizerFast" in {CONFIG}.',
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
                    f"{name}: its added token {text!r} is white space once it is normalized, so it is found everywhere."
                    f" Add it anew: tokenizer.add_tokens(AddedToken({text!r}, normalized=False))",
                    code="tokenizer.blank-added-token",
                )
