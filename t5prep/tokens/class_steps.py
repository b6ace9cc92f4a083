"""Return a `tokenizer.json` as transformers uses it for a class: with the steps of the file, or with those of the class.

transformers 4 normalizes and splits a text by the steps of the file, which it makes of a SentencePiece model where there is
none. transformers 5 keeps the vocabulary of the file, and builds the steps of some classes anew. For ordinary texts both give
SentencePiece's ids, which T5 was trained with and t5prep gives; for these they do not:

- A map of characters (`Precompiled`) is looked up by `tokenizers` for a whole grapheme of at most 5 bytes, whose shortest mapped
  beginning then stands for all of it (`e`, U+0301, U+0323 becomes `é`), and for each character of a longer one (`か`, U+3099 is
  not joined). SentencePiece maps the longest run of characters.
- Blanks that are no spaces: the classes of transformers 5 split at them, or replace them.
- Characters without a piece: SentencePiece spells them in bytes where the model has these (mT5, umT5), transformers does not.
- DeBERTa: transformers 5 leaves the map of characters out, and composes characters (NFC). t5prep has the ids of transformers 4.
- ALBERT: transformers 5 has no piece for a space at the end of a text.
"""

from collections.abc import Callable, Sequence

from t5prep.tokens import encoder_tokenizer, huggingface_files
from t5prep.tokens.encoder_tokenizer import SPACE
from t5prep.tokens.tokenizer import Tokenizer
from t5prep.tokens.tokenizer_document import AddedToken, Document, Model, SmallFile, Step

_STRIP_RIGHT: Step = {"type": "Strip", "strip_left": False, "strip_right": True}


def rebuilt(document: Document, config: SmallFile, class_name: str) -> Document | None:
    """Return a `tokenizer.json` as transformers 5 uses it; None if it has the steps of the file, or the class is not known.

    config: its tokenizer_config.json; named: its class, as `folder_checks.class_of` says it
    """
    steps = _STEPS.get(class_name)
    if steps is None or document["model"].get("type", "Unigram") != "Unigram":
        return None
    normalizers, splitters = steps(_maps(document), config)
    same_normalizers = encoder_tokenizer.steps(document.get("normalizer"), "normalizers") == normalizers
    same_splitters = encoder_tokenizer.steps(document.get("pre_tokenizer"), "pretokenizers") == splitters
    if same_normalizers and same_splitters and not document["model"].get("byte_fallback"):
        return None
    return {
        **document,
        "normalizer": {"type": "Sequence", "normalizers": normalizers} if normalizers else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": splitters},
        "model": {**document["model"], "byte_fallback": False},
    }


def converted(tokenizer: Tokenizer) -> Document:
    """Return the `tokenizer.json` that transformers 4 makes of a T5's SentencePiece model, which spells no character in bytes."""
    document = huggingface_files.tokenizer_json(tokenizer)
    if document["model"]["type"] != "Unigram":
        return document
    squeeze: Step = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": SPACE}
    normalizer: Step = {"type": "Sequence", "normalizers": [*_maps(document), _STRIP_RIGHT, squeeze]}
    return {**document, "normalizer": normalizer, "model": {**document["model"], "byte_fallback": False}}


def splits_alike(document: Document, other_document: Document, *, name: str) -> bool:
    """Check whether two files with the same vocabulary split ordinary texts alike: letters and spaces, with added tokens or without.

    No text that is tried ends in a space (ALBERT's). The files get a vocabulary of the characters of these texts, so this takes
    a millisecond.
    """
    tokens = [str(token["content"]) for token in encoder_tokenizer.users(document)]
    pairs = (f for token in tokens for f in (f"a {token} b", f"a{token}b", f"{token} a", f"a {token}"))
    texts = ["a b", " a", "  a  b", "A b", "``a''", "é", *pairs]
    first, second = (_tried(variant, tokens, texts, name=name) for variant in (document, other_document))
    return first == second


def _tried(document: Document, tokens: Sequence[str], texts: Sequence[str], *, name: str) -> list[list[int]]:
    characters = sorted({*"".join(texts), SPACE, *map(chr, range(0x21, 0x7F))} - {" "})
    vocabulary = ["<unk>", *characters]
    users = encoder_tokenizer.users(document)
    added: list[AddedToken] = [{**token, "id": len(vocabulary) + index} for index, token in enumerate(users)]
    model: Model = {
        "type": "Unigram",
        "unk_id": 0,
        "vocab": [(text, -1.0) for text in vocabulary],
        "byte_fallback": False,
    }
    plain: Document = {**document, "added_tokens": added, "model": model, "post_processor": None}
    fast = encoder_tokenizer.read_fast(plain, name=name)
    with encoder_tokenizer.failures(name):
        return [fast.encode(text).ids for text in texts]


def _maps(document: Document) -> list[Step]:
    """Return the step of a file that maps characters, the only one that a class of transformers 5 keeps, if there is one."""
    steps = encoder_tokenizer.steps(document.get("normalizer"), "normalizers")
    return [step for step in steps if step["type"] == "Precompiled"][:1]


def _metaspace(scheme: str) -> Step:
    return {**encoder_tokenizer.SPACES, "prepend_scheme": scheme}


Steps = tuple[list[Step], list[Step]]  # normalizers, pre-tokenizers


def _t5(maps: list[Step], config: SmallFile) -> Steps:
    return maps, [{"type": "WhitespaceSplit"}, _metaspace("always")]


def _xlm_roberta(maps: list[Step], config: SmallFile) -> Steps:
    scheme = "always" if config.get("add_prefix_space", True) else "never"
    return maps, [{"type": "WhitespaceSplit"}, _metaspace(scheme)]


def _albert(maps: list[Step], config: SmallFile) -> Steps:
    quotes: list[Step] = [{"type": "Replace", "pattern": {"String": text}, "content": '"'} for text in ("``", "''")]
    accents: list[Step] = [] if config.get("keep_accents", False) else [{"type": "NFKD"}, {"type": "StripAccents"}]
    return [*quotes, *accents, *encoder_tokenizer.lowercase(config, default=True), *maps], _xlm_roberta(maps, config)[1]


def _deberta(maps: list[Step], config: SmallFile) -> Steps:
    letters = encoder_tokenizer.lowercase(config, default=False)
    blanks: Step = {"type": "Replace", "pattern": {"Regex": r"\s{2,}|[\n\r\t]"}, "content": " "}
    scheme = "always" if config.get("add_prefix_space", True) else "first"
    splitters = [*encoder_tokenizer.punctuation(config), _metaspace(scheme)]
    return [*letters, blanks, {"type": "NFC"}, _STRIP_RIGHT], splitters


_STEPS: dict[str, Callable[[list[Step], SmallFile], Steps]] = {
    "t5tokenizer": _t5,
    "xlmrobertatokenizer": _xlm_roberta,
    "camemberttokenizer": _xlm_roberta,
    "alberttokenizer": _albert,
    "debertav2tokenizer": _deberta,
}
