"""Build a `tokenizer.json` with the steps that transformers uses: those of the file, or those of a tokenizer's class.

transformers 4 normalizes and splits a text by the steps of the file, which it builds from a SentencePiece model if there is none.
transformers 5 keeps the vocabulary of the file, and replaces the steps of some classes. For ordinary texts both give
SentencePiece's ids, which T5 was trained with and t5prep gives. They differ for these texts:

- A map of characters (`Precompiled`): `tokenizers` looks up a whole grapheme of at most 5 bytes, and the shortest mapped prefix
  replaces all of it (`e`, U+0301, U+0323 becomes `é`). It looks up each character of a longer grapheme (`か`, U+3099 is not
  joined). SentencePiece maps the longest run of characters.
- Blanks that are not spaces: the classes of transformers 5 split at them, or replace them.
- Characters without a piece: SentencePiece spells them in bytes if the model has bytes (mT5, umT5), transformers does not.
- DeBERTa: transformers 5 ignores the map of characters, and composes characters (NFC). t5prep gives the ids of transformers 4.
- ALBERT: transformers 5 has no piece for a space at the end of a text.
"""

from collections.abc import Callable, Sequence

from t5prep.tokens import encoder_tokenizer, huggingface_files
from t5prep.tokens.encoder_tokenizer import SPACE
from t5prep.tokens.tokenizer import Tokenizer
from t5prep.tokens.tokenizer_document import AddedToken, Document, Model, SmallFile, Step

_STRIP_RIGHT: Step = {"type": "Strip", "strip_left": False, "strip_right": True}


def rebuilt(document: Document, config: SmallFile, class_name: str) -> Document | None:
    """Return a `tokenizer.json` with the steps of transformers 5; None if these equal the file's, or the class is not known.

    document: the `tokenizer.json`. config: the tokenizer_config.json. class_name: the class, from `folder_checks.class_of`.
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
    """Return the `tokenizer.json` that transformers 4 builds from a T5's SentencePiece model, without byte fallback."""
    document = huggingface_files.tokenizer_json(tokenizer)
    if document["model"]["type"] != "Unigram":
        return document
    squeeze: Step = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": SPACE}
    normalizer: Step = {"type": "Sequence", "normalizers": [*_maps(document), _STRIP_RIGHT, squeeze]}
    return {**document, "normalizer": normalizer, "model": {**document["model"], "byte_fallback": False}}


def splits_alike(document: Document, other_document: Document, *, name: str) -> bool:
    """Check whether two files with the same vocabulary split ordinary texts alike: letters, spaces and added tokens.

    Both are tried on a few texts. None ends in a space, because of ALBERT. For speed the vocabulary is replaced by the characters
    of these texts, so a check takes a millisecond. name: the tokenizer's name in errors.
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
    """Return the normalizer that maps characters, in a list, which is empty if there is none.

    It is the only step of a file that the classes of transformers 5 keep.
    """
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
