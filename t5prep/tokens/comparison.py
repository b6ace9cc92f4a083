"""Encode the same texts with other libraries, where they are installed."""

import importlib.util
import json
from pathlib import Path

from t5prep.tokens import huggingface_files
from t5prep.tokens.audit import Encode
from t5prep.tokens.tokenizer import Tokenizer


def libraries(tokenizer: Tokenizer, *, name: str) -> dict[str, Encode]:
    """Return encoders without EOS by library: `tokenizers`, and `transformers` if `name` is a directory it can load.

    `tokenizers` gets the directory's tokenizer.json, or one built from the model where there is none.
    """
    encoders: dict[str, Encode] = {}
    directory = Path(name) if Path(name).is_dir() else Path(name).parent
    if importlib.util.find_spec("tokenizers"):
        import tokenizers

        path = directory / "tokenizer.json"
        own = path.read_text() if path.exists() else json.dumps(huggingface_files.tokenizer_json(tokenizer))
        fast = tokenizers.Tokenizer.from_str(own)
        encoders["tokenizers"] = lambda texts: [
            encoded.ids for encoded in fast.encode_batch(texts, add_special_tokens=False)
        ]
    if (directory / "tokenizer_config.json").exists() and importlib.util.find_spec("transformers"):
        from transformers import AutoTokenizer

        auto = AutoTokenizer.from_pretrained(directory, local_files_only=True)
        encoders["transformers"] = lambda texts: auto(texts, add_special_tokens=False, verbose=False)["input_ids"]
    return encoders
