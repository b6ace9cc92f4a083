"""Find a tokenizer by the name that the user gives: `sample:`, a file, a directory, a Hub name."""

import difflib
import functools
import json
from pathlib import Path

from t5prep.errors import TokenizerError, UsageError
from t5prep.io import model_files, paths
from t5prep.io.model_files import ModelFiles
from t5prep.tokens import encoder_json, model_proto, unigram_json
from t5prep.tokens.encoder_tokenizer import EncoderTokenizer
from t5prep.tokens.tokenizer import Tokenizer

# The file names of a SentencePiece model in directories of Hugging Face layout.
MODEL_NAMES = ("spiece.model", "sentencepiece.model", "tokenizer.model", "sentencepiece.bpe.model")
# The file of the `tokenizers` library, read where there is no SentencePiece model, and the one that names ByT5's class
JSON_NAME, CONFIG_NAME = "tokenizer.json", "tokenizer_config.json"
BYTES_CLASS = "ByT5Tokenizer"


def load(name: str) -> Tokenizer:
    """Return the tokenizer of a name: `sample:`, a file, a directory that holds one, or a Hub name.

    Raises TokenizerError.

    A file is a SentencePiece model or a `tokenizer.json`. ByT5 has neither; it is known by its `tokenizer_config.json`.
    An encoder's tokenizer (BERT's, RoBERTa's, ...) may be a `vocab.txt`, or a `vocab.json` beside its `merges.txt`.
    """
    path = find(name)
    if path.suffix in (".json", ".txt"):
        own = encoder_json.tokenizer_json(model_files.in_directory(path.parent, name=name))
        if own is not None:
            return EncoderTokenizer(own, name=name)
    if path.name == CONFIG_NAME:
        return Tokenizer(model_proto.model(), name=name)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise TokenizerError(f"{path} cannot be read ({error.strerror}).") from error
    return of_content(unigram_json.convert(content, name=name) if path.suffix == ".json" else content, name=name)


@functools.lru_cache(maxsize=1)  # a run reads again what it has staged for its workers
def of_content(content: bytes, *, name: str) -> Tokenizer:
    """Return the tokenizer of `Tokenizer.model`, as a run or a worker keeps it. Raises TokenizerError."""
    return (EncoderTokenizer if content.startswith(b"{") else Tokenizer)(content, name=name)


def find(name: str) -> Path:
    """Return the path of the tokenizer's file, fetched from the Hub where the name is not a local path.

    Raises TokenizerError.
    """
    if name == "sample:":
        from t5prep.sources import sample

        return sample.tokenizer_path()
    path = Path(name)
    if path.is_dir():
        return _file_of(model_files.in_directory(path, name=name))
    if path.exists():
        return path
    if name == "sample" or (name.endswith(":") and difflib.get_close_matches(name, ["sample:"])):
        raise TokenizerError(
            f'"{name}" is not a tokenizer. Did you mean "sample:"? It is the small one that is built in.'
        )
    meant = paths.mistyped(path) if "/" in name else ""
    if meant or path.suffix == ".model" or name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise TokenizerError(f"{name} does not exist.{meant} Pass a spiece.model file, its directory, or a Hub name.")
    try:
        return _file_of(model_files.find(name))
    except UsageError as error:
        raise TokenizerError(
            f"{error}".replace(model_files.WANTED, "T5's own tokenizer is google-t5/t5-base.")
        ) from None


def _file_of(files: ModelFiles) -> Path:
    """Return the file of a model from which its tokenizer is made. Raises TokenizerError where there is none."""
    is_encoders = encoder_json.tokenizer_json(files) is not None
    of_t5 = (*MODEL_NAMES, JSON_NAME)
    for name in (JSON_NAME, encoder_json.WORDS, encoder_json.PAIRS) if is_encoders else of_t5:
        if name in files.names:
            return files.path(name)
    for name in (CONFIG_NAME, "config.json"):
        if name in files.names and _class_in(files.read(name)) == BYTES_CLASS:
            return files.path(name).with_name(CONFIG_NAME)
    raise TokenizerError(
        f"{files.name} holds no tokenizer; one of {', '.join((*MODEL_NAMES, JSON_NAME))} is looked for, or a"
        f" {CONFIG_NAME} that names {BYTES_CLASS}."
    )


def _class_in(content: bytes) -> str:
    """Return the tokenizer class that a JSON file names, "" where it names none."""
    try:
        return str(json.loads(content)["tokenizer_class"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return ""
