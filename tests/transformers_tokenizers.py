"""Save tokenizers and encode texts with the transformers of the Python that runs this file, 4.57 or 5.

It imports nothing of t5prep, so that an environment with another transformers can run it. Its input and its output are JSON:

    python transformers_tokenizers.py < {"save": [[folder, out, use_fast, tokens, special tokens]], "encode": {folder: [texts]}}
"""

import json
import sys
from typing import Any


def load(folder: str, *, use_fast: bool = True) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, use_fast=use_fast, local_files_only=True)


def save(folder: str, out: str, use_fast: bool, tokens: list[str], special: list[str]) -> str:
    """Save a folder's tokenizer with added tokens. Return why it cannot be saved, or ""."""
    try:
        tokenizer = load(folder, use_fast=use_fast)
        if tokens:
            tokenizer.add_tokens(tokens)
        if special:
            tokenizer.add_tokens(special, special_tokens=True)
        tokenizer.save_pretrained(out)
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return ""


def encode(folder: str, texts: list[str]) -> list[list[int]] | str:
    """Return the ids of texts with special tokens around them, or why a folder has none."""
    try:
        tokenizer = load(folder)
        return [tokenizer(text, verbose=False)["input_ids"] for text in texts]
    except BaseException as error:
        return f"{type(error).__name__}: {error}"


def main() -> None:
    import transformers

    transformers.logging.set_verbosity_error()
    request = json.load(sys.stdin)
    answer = {
        "version": transformers.__version__,
        "saved": [save(*arguments) for arguments in request.get("save", [])],
        "encoded": {folder: encode(folder, texts) for folder, texts in request.get("encode", {}).items()},
    }
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
