"""Encode the same texts with other libraries, where they are installed."""

import contextlib
import importlib.util
import json
import os
from collections.abc import Iterator
from pathlib import Path

from t5prep.errors import TokenizerError
from t5prep.tokens import huggingface_files
from t5prep.tokens.audit import Encode
from t5prep.tokens.tokenizer import Tokenizer


@contextlib.contextmanager
def _without_noise() -> Iterator[None]:
    """Keep what a library writes to the file of stderr itself from the user: a panic prints a page."""
    kept = os.dup(2)
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def libraries(tokenizer: Tokenizer, *, name: str) -> dict[str, Encode]:
    """Return encoders without EOS by library: `tokenizers`, and `transformers` if `name` is a directory it can load.

    `tokenizers` gets the directory's tokenizer.json, or one built from the model where there is none. Raises TokenizerError
    where it cannot read that.
    """
    encoders: dict[str, Encode] = {}
    directory = Path(name) if Path(name).is_dir() else Path(name).parent
    if importlib.util.find_spec("tokenizers"):
        import tokenizers

        path = directory / "tokenizer.json"
        try:
            own = path.read_text("utf-8") if path.exists() else json.dumps(huggingface_files.tokenizer_json(tokenizer))
            with _without_noise():
                fast = tokenizers.Tokenizer.from_str(own)
        except BaseException as error:
            # The library is written in Rust, and its panics are no exceptions of Python's.
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            why = str(error).splitlines()[0][:100]
            raise TokenizerError(
                f"{name} is damaged: the library tokenizers cannot read it ({why}). Fetch it again."
            ) from None
        encoders["tokenizers"] = lambda texts: [
            encoded.ids for encoded in fast.encode_batch(texts, add_special_tokens=False)
        ]
    if (directory / "tokenizer_config.json").exists() and importlib.util.find_spec("transformers"):
        from transformers import AutoTokenizer

        try:
            auto = AutoTokenizer.from_pretrained(directory, local_files_only=True)
        except Exception as error:  # of many kinds: a file is missing, damaged, or of another version
            raise TokenizerError(
                f"{directory} is damaged: the library transformers cannot read its tokenizer "
                f"({str(error).splitlines()[0][:100]}). Fetch it again."
            ) from None
        encoders["transformers"] = lambda texts: auto(texts, add_special_tokens=False, verbose=False)["input_ids"]
    return encoders
