"""Load a tokenizer by its name: `sample:`, a file, a directory, or a Hub name.

All files of a directory count, as in transformers: `tokenizer_config.json`, `added_tokens.json` and `tokenizer.json` hold the number
of sentinels and the tokens that a user added. A directory is refused if transformers would give different ids for a text,
depending on its version or on the file that it reads (`folder_checks`).
"""

import difflib
import functools
import json
from pathlib import Path

from t5prep.errors import TokenizerError, UsageError
from t5prep.io import model_files, paths
from t5prep.io.model_files import ModelFiles
from t5prep.json_values import MALFORMED_ERRORS
from t5prep.tokens import (
    bpe_tokenizer,
    class_steps,
    encoder_tokenizer,
    folder_checks,
    model_proto,
    sentencepiece_json,
    special_tokens,
)
from t5prep.tokens.bpe_tokenizer import BpeTokenizer
from t5prep.tokens.encoder_tokenizer import JSON, EncoderTokenizer
from t5prep.tokens.special_tokens import CONFIG
from t5prep.tokens.tokenizer import Tokenizer
from t5prep.tokens.tokenizer_document import Document

# The file names of a SentencePiece model in directories of Hugging Face layout.
MODEL_NAMES = ("spiece.model", "sentencepiece.model", "tokenizer.model", "sentencepiece.bpe.model")
# The class in the tokenizer_config.json of a folder without a vocabulary, whose ids are bytes.
BYTES_CLASS = "ByT5Tokenizer"


def load(name: str | ModelFiles, *, from_manifest: bool = False) -> Tokenizer:
    """Return the tokenizer `name`: `sample:`, a file, a directory, a Hub name, or the files of a model. Raises TokenizerError.

    A Hub name `from_manifest`, which the author of a dataset chose, is fetched only if the user has named it before.

    A file is a SentencePiece model or a `tokenizer.json`. ByT5 has neither, and is recognized by its `tokenizer_config.json`. An
    encoder's tokenizer (BERT's, RoBERTa's, ...) may also be a `vocab.txt`, a `vocab.json` beside its `merges.txt`, or a
    `spm.model`. The other files of a directory or a Hub repository count as in transformers (`_of_folder`).
    """
    try:
        return _load(name, from_manifest=from_manifest)
    except MALFORMED_ERRORS as error:
        name = name.name if isinstance(name, ModelFiles) else name
        raise TokenizerError(
            f"The files of the tokenizer {name} are damaged ({type(error).__name__}). Fetch them again.",
            code="tokenizer.damaged",
        ) from error


def _load(name: str | ModelFiles, *, from_manifest: bool) -> Tokenizer:
    """Return the tokenizer as `load` does, but raise MALFORMED_ERRORS for files that no check of its own covers."""
    if isinstance(name, ModelFiles):
        return _of_folder(name)
    source = _find(name, from_manifest=from_manifest)
    if isinstance(source, ModelFiles):
        return _of_folder(source)
    files = model_files.in_directory(source.parent, name=name)
    if source.suffix in (".json", ".txt") or source.name == encoder_tokenizer.PIECES:
        content = _of_encoder(files)
        if content is not None:
            return of_content(content, name=name)
    if source.name == CONFIG:
        return _of_bytes(files)
    if source.name == encoder_tokenizer.PAIRS:
        return of_content(bpe_tokenizer.of_pairs(files), name=name)
    try:
        content = paths.read(source)
    except OSError as error:
        raise TokenizerError(f"{source} cannot be read ({error.strerror}).", code="tokenizer.unreadable") from error
    if source.suffix == ".json":
        content = _of_json(content, folder_checks.parse(content, name=name), name=name)
    return of_content(content, name=name)


def _of_folder(files: ModelFiles) -> Tokenizer:
    """Return the tokenizer of a directory or a Hub repository, by all its files. Raises TokenizerError."""
    name = files.name
    content = _of_encoder(files)
    if content is not None:
        return of_content(content, name=name)
    written = files.read(JSON) if JSON in files.names else b""
    document = folder_checks.parse(written, name=name) if JSON in files.names else {}
    file = _file_of(files, document)
    if file == CONFIG:
        return _of_bytes(files)
    if file == encoder_tokenizer.PAIRS:
        return of_content(bpe_tokenizer.of_pairs(files), name=name)
    if file == JSON:
        content, document = encoder_tokenizer.with_added(written, document, files)
        folder_checks.check_small_files(files, document)
        return of_content(_of_json(content, document, name=name), name=name)
    return _of_sentencepiece(files, file, written, document)


def _of_encoder(files: ModelFiles) -> bytes | None:
    """Return an encoder's tokenizer.json, read or built; None if the files are not an encoder's. Raises TokenizerError."""
    content = encoder_tokenizer.tokenizer_json(files)
    if content is not None and JSON in files.names:
        folder_checks.check_small_files(files, folder_checks.parse(content, name=files.name))
    return content


def _of_sentencepiece(files: ModelFiles, file: str, written: bytes, document: Document) -> Tokenizer:
    """Return the tokenizer of the SentencePiece model in `file`, with the sentinels and added tokens of the other files.

    written, document: the tokenizer.json beside it, as bytes and parsed; both empty if there is none. Raises TokenizerError if the
    ids of transformers cannot be reproduced.
    """
    name = files.name
    tokenizer = of_content(files.read(file), name=name)
    folder_checks.check_class(files)
    count = folder_checks.sentinels_of(files, tokenizer)
    if count is not None and count != tokenizer.sentinels:
        tokenizer = of_content(model_proto.with_sentinels(tokenizer.model, count), name=name)
    users = [
        token
        for token in special_tokens.in_small_files(files)
        if not special_tokens.has_role(str(token["content"])) and int(token["id"]) >= tokenizer.vocab_size
    ]
    if JSON not in files.names:
        if users:
            raise TokenizerError(
                f"{name} adds the token {users[0]['content']!r} to {file}, but has no tokenizer.json that "
                f"defines how to split texts at it. Create tokenizer.json: {special_tokens.save_command(name)}",
                code="tokenizer.missing-json",
            )
        return tokenizer
    folder_checks.check_same(tokenizer, document, file=file)
    content, document = encoder_tokenizer.with_added(written, document, files)
    folder_checks.check_small_files(files, document)
    users = [token for token in special_tokens.added_by_users(document) if int(token["id"]) >= tokenizer.vocab_size]
    return of_content(_of_json(content, document, name=name), name=name) if users else tokenizer


def _of_bytes(files: ModelFiles) -> Tokenizer:
    """Return ByT5's tokenizer, which has no vocabulary file. Raises TokenizerError if the files add tokens to it."""
    for token in special_tokens.in_small_files(files):
        if not special_tokens.has_role(str(token["content"])):
            raise TokenizerError(
                f"{files.name} adds the token {token['content']!r} to ByT5's bytes, which t5prep does not "
                f"support. Remove the token from {CONFIG} and added_tokens.json, or use a tokenizer with "
                "pieces.",
                code="tokenizer.unsupported-added-token",
            )
    return Tokenizer(model_proto.model(), name=files.name)


def _of_json(content: bytes, document: Document, *, name: str) -> bytes:
    """Return the content of `Tokenizer.model` for a `tokenizer.json` of a model that writes texts. Raises TokenizerError.

    It is the `tokenizer.json` itself for a BPE model, or with users' tokens; otherwise the equivalent SentencePiece model.
    """
    writes_texts = bpe_tokenizer.writes_texts(document)
    if writes_texts and document["model"].get("type") == "BPE":
        return content
    if not writes_texts or not special_tokens.added_by_users(document):
        return sentencepiece_json.convert(document, name=name)
    sentencepiece_json.check_steps(document, name=name)
    return content


@functools.lru_cache(maxsize=1)  # `prepare` opens a tokenizer, and again from the content staged for its workers
def of_content(content: bytes, *, name: str) -> Tokenizer:
    """Return the tokenizer whose `Tokenizer.model` is `content`. Runs and workers store this content. Raises TokenizerError."""
    if not content.startswith(b"{"):
        return Tokenizer(content, name=name)
    return (BpeTokenizer if bpe_tokenizer.is_of_text_model(content) else EncoderTokenizer)(content, name=name)


def _find(name: str, *, from_manifest: bool = False) -> Path | ModelFiles:
    """Return the path of the file `name`, or the files of the directory or Hub repository `name`. Raises TokenizerError.

    For `from_manifest`, see `load`.
    """
    if name == "sample:":
        from t5prep.sources import sample

        return sample.tokenizer_path()
    path = Path(name)
    if path.is_dir():
        return model_files.in_directory(path, name=name)
    if path.exists():
        return path
    if name == "sample" or (name.endswith(":") and difflib.get_close_matches(name, ["sample:"])):
        raise TokenizerError(
            f'"{name}" is not a tokenizer. Did you mean "sample:", the small built-in tokenizer?',
            code="tokenizer.not-found",
        )
    suggestion = paths.mistyped(path) if "/" in name else ""
    if suggestion or path.suffix == ".model" or name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise TokenizerError(
            f"{name} does not exist.{suggestion} Pass a spiece.model file, its directory, or a Hub name.",
            code="tokenizer.not-found",
        )
    try:
        files = model_files.find_known(name) if from_manifest else model_files.find(name)
    except UsageError as error:
        raise TokenizerError(
            f"{error}".replace(model_files.MODEL_NAME_HINT, "T5's own tokenizer is google-t5/t5-base.").replace(
                "pass a directory of this machine", "pass a spiece.model file of this machine"
            ),
            code="tokenizer.not-found" if error.code == "model.not-found" else error.code,
        ) from None
    if files is None:
        raise TokenizerError(
            f"The manifest names the tokenizer {name} on the Hugging Face Hub, which you have never used and which is not "
            "on this machine.",
            code="dataset.untrusted-tokenizer",
        )
    return files


def as_in_transformers(name: str, tokenizer: Tokenizer) -> dict[str, bytes]:
    """Return the `tokenizer.json`s that transformers would use for the folder `name`, by a description of each, for audits.

    For a single tokenizer.json it is this file, and for other files there is none. tokenizer: the result of `load(name)`. Raises
    TokenizerError.
    """
    source = _find(name)
    if not isinstance(source, ModelFiles):
        return {"the file": paths.read(source)} if source.name == JSON else {}
    class_name, documents = folder_checks.class_of(source), {}
    if JSON in source.names:
        content = source.read(JSON)
        content, document = encoder_tokenizer.with_added(content, folder_checks.parse(content, name=name), source)
        documents["the folder's tokenizer.json"] = content
    elif isinstance(tokenizer, EncoderTokenizer):
        document = json.loads(tokenizer.model)  # `encoder_tokenizer` built it as transformers does
    elif tokenizer.is_bytes:
        return {}
    else:
        document = class_steps.converted(tokenizer)
        documents["transformers 4"] = json.dumps(document).encode()
    config = special_tokens.read_object(source, CONFIG)
    if (rebuilt := class_steps.rebuilt(document, config, class_name)) is not None:
        documents["transformers 5"] = json.dumps(rebuilt).encode()
    return documents


def _file_of(files: ModelFiles, document: Document) -> str:
    """Return the name of the file with the tokenizer's vocabulary. Raises TokenizerError if there is none.

    document: the tokenizer.json among the files, parsed; empty if there is none.
    """
    for name in (*MODEL_NAMES, JSON, encoder_tokenizer.PAIRS):
        if name in files.names and (name != encoder_tokenizer.PAIRS or encoder_tokenizer.MERGES in files.names):
            # Two facts are missing in a SentencePiece model, so the JSON file is preferred. Gemma's does not say whether a text begins
            # with <bos>, as T5Gemma 2's texts do. Llama's does not say how transformers writes the spaces that begin a text.
            begins = name == "tokenizer.model" and bpe_tokenizer.begins_texts(document)
            return JSON if begins or (name in MODEL_NAMES and bpe_tokenizer.puts_space(document)) else name
    for name in (CONFIG, "config.json"):
        if special_tokens.read_object(files, name).get("tokenizer_class") == BYTES_CLASS:
            return CONFIG
    raise TokenizerError(
        f"{files.name} contains no tokenizer. Add one of these files: "
        f"{', '.join((*MODEL_NAMES, JSON))}, or a {CONFIG} that names {BYTES_CLASS}.",
        code="tokenizer.missing-file",
    )
